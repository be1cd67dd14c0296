--[[ repair/queue: compare a part of a queue's indexes with the runs and their entries, and repair differences.
KEYS   base
ARGV   now_ms queue random
ROWS   state
REPLY  [runs looked at, repaired, 1 if the end of the last index was reached]
VERBS  submit lose release unblock skip cancel wake
FLAGS  allow-oom
USES   plans limits waits session_turns end_run merge_queue
The scripts keep all of these together; this is for damage to Redis itself: a stream, a hash or a group that was deleted
by hand, evicted, or lost. A pending run gets an entry if it has none, or one that was read and is in no pending list; a
held run with an unknown worker is released or lost; a blocked run whose dependency has vanished is notified; a missing
timer is set; an index entry without a run is deleted, with its dependents. A queue without any runs is forgotten. ]]

local state

local function is_held_by(worker, id) return worker and call('HEXISTS', key_worker_runs(worker), id) == 1 end

-- Whether reapers will judge a worker: it is on their list, or is put there if there is a record of it.
local function is_known_to_reaper(worker)
  if not worker then return false end
  if call('ZSCORE', key_workers(), worker) then return true end
  local of = call('HGET', key_worker(worker), 'state')
  if of ~= 'ready' and of ~= 'draining' and of ~= 'lost' then return false end
  call('ZADD', key_workers(), call('GET', key_worker_lease(worker)) or now, worker)
  return true
end

local last_read = {}

-- Whether a worker will claim the run: its entry has not been read yet, or is in a pending list.
local function has_live_entry(id, run)
  local name, entry = key_lane(run.lane), run.entry
  if entry == '' then return call('ZSCORE', key_fair_queue(run.lane), id) end
  if #call('XRANGE', name, entry, entry) == 0 then return false end
  if not last_read[name] then
    local group = redis.pcall('XINFO', 'GROUPS', name)[1]
    last_read[name] = group and group[8] or '0-0'
  end
  if #call('XRANGE', name, '(' .. last_read[name], entry, 'COUNT', 1) > 0 then return true end
  return #call('XPENDING', name, 'workers', entry, entry, 1) > 0
end

local function missing_timer(id, run)
  if call('ZSCORE', key_timers(), id) then return nil end
  if not is_ended(run) then return next_timer(run) end
  return tonumber(call('HGET', run.key, 'finished_at_ms')) + (run.keep_ms or KEEP_MS)
end

-- A turn that has lost its place gets it back; the next round finds the first turn, when all have their places.
local function repair_turn(id, run)
  local place = call('HMGET', run.key, 'turn_number')[1]
  if not place or call('ZSCORE', key_session_turns(run.turn_of), id) then return false end
  call('ZADD', key_session_turns(run.turn_of), place, id)
  return true
end

local function repair_blocked(id, run)
  if call('HEXISTS', key_run(id), 'dependencies_open') == 1 then return false end
  local limit = awaited_limit(run)
  if limit then
    if call('ZSCORE', key_limit_waiters(limit), id) then return false end
    join_waiters(id, run, limit)
    freed_limits[#freed_limits + 1] = limit
    return true
  end
  local needs, repaired = call('SRANDMEMBER', key_dependencies(id), 20), false
  for _, parent in ipairs(needs) do
    local other = load(parent)
    if not other or (is_ended(other) and not call('ZSCORE', key_dependents(parent), id)) then
      resolve_dependency(id, parent, other and other.state or 'missing')
      repaired = true
    end
  end
  if #needs > 0 then return repaired end
  if run.turn_of and run.reason == 'turn' and first_turn(run.turn_of) ~= id then
    local first = load(first_turn(run.turn_of))
    if first and not is_ended(first) then return false end
    unblock_next_turn(run.turn_of)
  else
    unblock_run(id, run)
  end
  return true
end

-- A parent that waits for children hears of those that have ended or vanished without its knowing.
local function repair_waiting(id, run)
  local mode, repaired = call('HGET', run.key, 'awaited_children') or '', false
  for _, child in ipairs(mode ~= '' and call('ZRANDMEMBER', key_children(id), 20) or {}) do
    local other = load(child)
    if not other or is_ended(other) then
      notify_parent(child, { parent = id, state = other and other.state or 'missing' })
      repaired = true
    end
  end
  if repaired or not have_children_ended(id, mode) then return repaired end
  wake_run(id, run, 'wake', 'its children are gone')
  return true
end

local function repair_run(id)
  local run = load(id)
  if not run then
    call('ZREM', key_index(queue, state), id)
    call('ZREM', key_states(state), id)
    call('UNLINK', key_dependencies(id), key_log(id), key_pending_signals(id), key_signal_ids(id), key_children(id),
      key_ended_children(id), key_transcript(id))
    timers[id] = false
    unnotified_runs[#unnotified_runs + 1] = { id = id, state = 'missing' }
    return true
  end
  if run.state ~= state then
    reindex(id, run, state, run.state)
    return true
  end
  if state == 'pending' and not has_live_entry(id, run) then
    call('HSET', key_run(id), 'entry', enqueue(id, run))
    return true
  end
  if is_held(run) and not (is_held_by(run.worker, id) and is_known_to_reaper(run.worker)) then
    if state == 'claimed' then release_run(id, run, 'its worker is unknown') else lose_attempt(id, run, random, 'its worker is unknown') end
    return true
  end
  timers[id] = missing_timer(id, run)
  if timers[id] then return true end
  if run.turn_of and not is_ended(run) and repair_turn(id, run) then return true end
  if state == 'blocked' then return repair_blocked(id, run) end
  return state == 'waiting' and repair_waiting(id, run)
end

-- The walk goes on where the last call left it, at a place in the index of one of the states.
local at_state, from = string.match(call('HGET', key_cursors(), queue) or '', '^(%S+) (.*)$')
local checked, repaired = 0, 0
for each in next_row do
  state = each
  if not at_state or at_state == each then
    local room = INSPECT_PER_CALL - checked
    local ids = call('ZRANGE', key_index(queue, each), from or '-', '+', 'BYLEX', 'LIMIT', 0, room)
    local listed = #ids > 0 and call('ZMSCORE', key_states(each), unpack(ids)) or {}
    for place, id in ipairs(ids) do
      if not listed[place] then call('ZADD', key_states(each), 0, id) end
      if repair_run(id) or not listed[place] then repaired = repaired + 1 end
    end
    checked = checked + #ids
    if #ids == room then
      call('HSET', key_cursors(), queue, each .. ' ' .. (ids[room] and '(' .. ids[room] or from or '-'))
      return { checked, repaired, 0 }
    end
    at_state, from = nil, nil
  end
end
call('HDEL', key_cursors(), queue)
flush_indexes()
if call('EXISTS', key_index(queue, 'blocked'), key_index(queue, 'scheduled'), key_index(queue, 'pending'),
  key_index(queue, 'claimed'), key_index(queue, 'running'), key_index(queue, 'waiting'), key_index(queue, 'completed'),
  key_index(queue, 'failed'), key_index(queue, 'cancelled'), key_index(queue, 'skipped')) == 0 then
  call('SREM', key_queues(), queue)
end
return { checked, repaired, 1 }
