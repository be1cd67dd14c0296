--[[ reconcile: compare a stretch of a queue's index with the runs and their homes, and mend what does not fit.
KEYS   base
ARGV   now_ms queue state dice
REPLY  [runs looked at, mended, 1 if the end of the index was reached]
VERBS  submit lose release unblock skip
FLAGS  allow-oom
The scripts keep all of these together; this is for what happens to Redis itself: a stream, a hash or a group that was
deleted by hand, evicted, or lost. A pending run without an entry gets one, a held run whose worker is unknown is
released or lost, a blocked run whose dependency has vanished is told so, an index entry without a run goes. ]]

local key = key_index(queue, state)
local field = queue .. ':' .. state
local from = call('HGET', key_cursors(), field) or '-'

local function holds(worker, id) return worker and call('HEXISTS', key_holds(worker), id) == 1 end

local function known(worker)
  local of = worker and call('HGET', key_worker(worker), 'state')
  return of == 'ready' or of == 'draining' or of == 'lost'
end

local function mend_blocked(id, run)
  if call('HEXISTS', key_run(id), 'open') == 1 then return false end
  local needs, mended = call('SRANDMEMBER', key_needs(id), 20), false
  for _, parent in ipairs(needs) do
    local other = load(parent)
    if not other or (is_ended(other) and not call('ZSCORE', key_dependents(parent), id)) then
      satisfy(id, parent, other and other.state or 'missing')
      mended = true
    end
  end
  if #needs == 0 then
    unblock(id, run)
    mended = true
  end
  return mended
end

local function mend(id)
  local run = load(id)
  if not run then
    call('ZREM', key, id)
    return true
  end
  if run.state ~= state then
    reindex(id, run.lane, state, run.state)
    return true
  end
  if state == 'pending' and #call('XRANGE', key_lane(run.lane), run.entry, run.entry) == 0 then
    call('HSET', key_run(id), 'entry', enqueue(id, run))
    return true
  end
  if is_held(run) and not (holds(run.worker, id) and known(run.worker)) then
    if state == 'claimed' then release(id, run, 'its worker is unknown') else lose(id, run, dice, 'its worker is unknown') end
    return true
  end
  local timer = next_timer(run)
  if timer and not call('ZSCORE', key_timers(), id) then
    timers[id] = timer
    return true
  end
  return state == 'blocked' and mend_blocked(id, run)
end

local ids = call('ZRANGE', key, from, '+', 'BYLEX', 'LIMIT', 0, INSPECT_A_CALL)
local mended = 0
for _, id in ipairs(ids) do
  if mend(id) then mended = mended + 1 end
end
if #ids < INSPECT_A_CALL then
  call('HDEL', key_cursors(), field)
  return { #ids, mended, 1 }
end
call('HSET', key_cursors(), field, '(' .. ids[#ids])
return { #ids, mended, 0 }
