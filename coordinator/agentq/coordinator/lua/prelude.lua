--[[ What every script shares. Before it stand, made from the Python tables: `base` and the key builders (keys.py), the
limits (limits.py), SOURCES and EVENTS of this script's verbs and BUDGETS (lifecycle.py). After it stands the script as
the body of `main`; `close` then carries out what was put off, so that a batch costs few commands. ]]

local call = redis.call
local now = tonumber(ARGV[1])
if not now then
  local time = call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end

-- The same as text: a number costs far more to hand to a command.
local stamp = string.format('%.0f', now)
local forget_at, events_kept = string.format('%.0f', now + KEEP_MS), tostring(EVENTS_KEPT)

-- What `close` does for all runs of the call at once.
local moved, gone, come, timers = {}, {}, {}, {}
local acked, unheld, unsettled = {}, {}, {}
local soonest = nil

local function queue_of(lane) return string.match(lane, '^[^:]*') end

local function present(value)
  if value == '' then return false end
  return value
end

local function push(lists, name, item)
  local list = lists[name]
  if list then list[#list + 1] = item else lists[name] = { item } end
end

local function json(value) return cjson.encode(value) end

local function outcome_json(class, message) return '{"class":"' .. class .. '","error":' .. json(message) .. '}' end

-- Read what the verbs need of a run; nil when there is none. What few runs have is read only from those with `more`.
local function load(id)
  local key = key_run(id)
  local f = call('HMGET', key, 'state', 'lane', 'entry', 'attempt', 'fence', 'worker', 'more')
  if not f[1] then return nil end
  local run = { key = key, state = f[1], lane = f[2], entry = f[3], attempt = tonumber(f[4] or 0), fence = f[5],
    worker = f[6] }
  if f[7] then
    local m = call('HMGET', key, 'op', 'stop_at_ms', 'due_at_ms', 'keep_ms', 'dedupe', 'dependents', 'reason', 'until_ms')
    run.op, run.stop_at_ms, run.due_at_ms, run.keep_ms = m[1], tonumber(m[2] or nil), tonumber(m[3] or nil), m[4]
    run.dedupe, run.dependents, run.reason = m[5], m[6], present(m[7])
    run.until_ms = run.attempt == 0 and tonumber(m[8] or nil)
  end
  return run
end

local function is_held(run) return run.state == 'claimed' or run.state == 'running' end

local function is_ended(run)
  local state = run.state
  return state == 'completed' or state == 'failed' or state == 'cancelled' or state == 'skipped'
end

-- Load a run for a verb of its worker, or say by name why not. A verb sent twice is `ok`: it finds its mark in `op`, or,
-- where the worker itself ended the attempt, the run in a state that the verb leads to.
local function load_held(id, fence, verb)
  local run = load(id)
  if not run then return nil, 'not_found' end
  if run.fence ~= fence then return nil, run.op == verb .. ' ' .. fence and 'ok' or 'fenced' end
  if SOURCES[verb][run.state] then return run end
  local into = EVENTS[verb].claimed or EVENTS[verb].running
  return nil, into[run.state] and 'ok' or 'wrong_state ' .. run.state
end

local function append(event, id, state, run, detail)
  call('XADD', key_events(), 'MAXLEN', '~', events_kept, '*', 'event', event, 'run', id, 'state', state,
    'attempt', run.attempt or 0, 'worker', run.worker or '', 'detail', detail or '')
end

-- When time next does something to a run, in its present state. `until_ms`, the end of a run's patience, counts only
-- until its first attempt.
local function next_timer(run)
  local state = run.state
  if run.stop_at_ms then return run.stop_at_ms end
  if state == 'scheduled' then return math.min(run.due_at_ms, run.until_ms or run.due_at_ms) end
  if state == 'waiting' then return run.due_at_ms end
  if state == 'pending' or state == 'blocked' then return run.until_ms end
  return nil
end

-- Note when time next does something to a run that has not ended.
local function set_timer(id, at)
  timers[id] = at
  soonest = math.min(soonest or at, at)
end

local index_names = {}

local function index_name(lane, state)
  local names = index_names[lane]
  if not names then
    names = {}
    index_names[lane] = names
  end
  local name = names[state]
  if not name then
    name = key_index(queue_of(lane), state)
    names[state] = name
  end
  return name
end

local function each_chunk(list, size, act)
  for first = 1, #list, size do act(unpack(list, first, math.min(first + size - 1, #list))) end
end

local function close_index()
  for name, ids in pairs(gone) do each_chunk(ids, 1000, function(...) call('ZREM', name, ...) end) end
  for name, scored in pairs(come) do each_chunk(scored, 1000, function(...) call('ZADD', name, ...) end) end
  moved, gone, come = {}, {}, {}
end

-- Note that a run moves from one index to another. What is put off must not overtake: a run that moves a second time in
-- one call finds the first move done.
local function reindex(id, lane, from, to)
  if moved[id] then close_index() end
  moved[id] = true
  if from then push(gone, index_name(lane, from), id) end
  if to then
    local name = index_name(lane, to)
    push(come, name, '0')
    push(come, name, id)
  end
end

-- Take a run along one arrow of the lifecycle: state, further fields, index, timer and event.
local function move(id, run, verb, state, detail, ...)
  local event = EVENTS[verb][run.state][state]
  if not event then error('no arrow ' .. verb .. ' from ' .. run.state .. ' to ' .. state) end
  local from, had_timer = run.state, timers[id] or next_timer(run) or is_ended(run)
  call('HSET', run.key, 'state', state, ...)
  run.state = state
  if from ~= state then reindex(id, run.lane, from, state) end
  local timer = next_timer(run)
  if timer then set_timer(id, timer) elseif had_timer then timers[id] = false end
  append(event, id, state, run, detail)
end

local opened = {}

-- Make sure that a lane, its group and its queue exist, and tell the workers of a new one.
local function open_lane(lane)
  if opened[lane] then return end
  opened[lane] = true
  if call('ZSCORE', key_lanes(), lane) then return end
  local newest = call('ZRANGE', key_lanes(), -1, -1, 'WITHSCORES')
  call('ZADD', key_lanes(), math.max(now, tonumber(newest[2] or 0) + 1), lane)
  call('SADD', key_queues(), queue_of(lane))
  redis.pcall('XGROUP', 'CREATE', key_lane(lane), 'workers', '0', 'MKSTREAM')
  for _, worker in ipairs(call('ZRANGE', key_workers(), 0, 999)) do
    call('XADD', key_inbox(worker), '*', 'order', 'lanes', 'run', '', 'fence', '', 'detail', lane)
  end
end

-- Give a run an entry in its lane.
local function enqueue(id, run)
  open_lane(run.lane)
  run.entry = call('XADD', key_lane(run.lane), '*', 'run', id)
  return run.entry
end

-- Throw away an entry that stands for nothing (any more).
local function drop(lane, entry) push(acked, lane, entry) end

-- Take a held run out of its lane and out of its worker's hands.
local function vacate(id, run)
  push(acked, run.lane, run.entry)
  push(unheld, run.worker, id)
  run.entry = ''
end

-- The record of the attempt that ends, as a field and its value; the oldest record goes.
local function archive(run, verb, outcome)
  if run.attempt > ATTEMPTS_KEPT then call('HDEL', run.key, 'attempt:' .. (run.attempt - ATTEMPTS_KEPT)) end
  local times = call('HMGET', run.key, 'claimed_at_ms', 'started_at_ms')
  return 'attempt:' .. run.attempt, '{"attempt":' .. run.attempt .. ',"worker":' .. json(run.worker or '')
    .. ',"claimed_at_ms":' .. (times[1] or 'null')
    .. ',"started_at_ms":' .. (times[2] or 'null')
    .. ',"ended_at_ms":' .. stamp .. ',"verb":"' .. verb .. '"'
    .. ',"outcome":' .. (outcome or 'null') .. '}'
end

-- End a run. The fence stays when its own worker ended it, and goes when it was `taken` from the worker, so that what
-- the worker says later is refused as fenced.
local function conclude(id, run, verb, state, why, outcome, taken)
  if is_held(run) then vacate(id, run) end
  if run.state == 'blocked' then call('UNLINK', key_needs(id)) end
  if run.reason or run.stop_at_ms then call('HDEL', run.key, 'reason', 'stop_at_ms', 'open') end
  if taken then call('HSET', run.key, 'fence', '') end
  run.stop_at_ms = nil
  move(id, run, verb, state, why, 'outcome', outcome, 'finished_at_ms', stamp)
  timers[id] = run.keep_ms and now + run.keep_ms or forget_at
  if run.dedupe and call('GET', key_dedupe(run.dedupe)) == id then call('DEL', key_dedupe(run.dedupe)) end
  if run.dependents then unsettled[#unsettled + 1] = { id = id, state = state } end
end

-- Leave an attempt for a state that is not an end; the fence goes, so that whoever still runs it is refused.
local function leave(id, run, verb, state, reason, outcome, op, ...)
  local record, value = archive(run, verb, outcome)
  call('HDEL', run.key, 'started_at_ms', 'progress', 'progress_number', 'wanted', 'stop_at_ms')
  vacate(id, run)
  run.fence, run.stop_at_ms = '', nil
  local entry = state == 'pending' and enqueue(id, run) or ''
  move(id, run, verb, state, reason, 'entry', entry, 'fence', '', 'worker', '', 'op', op, 'reason', reason,
    'due_at_ms', run.due_at_ms or '', 'more', 1, record, value, ...)
end

-- End a run for a reason of ours, rather than with an outcome that its worker reports.
local function end_with(id, run, verb, state, class, why, taken)
  conclude(id, run, verb, state, why, outcome_json(class, why), taken)
end

local function conclude_stopped(id, run, verb, taken)
  end_with(id, run, verb, 'cancelled', 'cancelled', 'cancelled on request', taken)
end

local function retry_policy(run)
  local text = call('HGET', run.key, 'retry')
  local policy = text and cjson.decode(text) or {}
  local final = {}
  for _, class in ipairs(policy.final or {}) do final[class] = true end
  return { failures = policy.failures or FAILURES, crashes = policy.crashes or CRASHES,
    deferrals = policy.deferrals or DEFERRALS, delay_ms = policy.delay_ms or DELAY_MS,
    factor = policy.factor or DELAY_FACTOR, delay_ms_max = policy.delay_ms_max or BACKOFF_MS_MAX, final = final }
end

-- Exponential with full jitter; `dice` is between 0 and 1, thrown by the caller.
local function backoff_ms(policy, spent, dice)
  local ceiling = math.min(policy.delay_ms * policy.factor ^ math.min(spent, 60), policy.delay_ms_max)
  return math.max(1, math.floor(ceiling * tonumber(dice)))
end

-- The reaper's verb: the worker of this attempt is gone, or does not know of it.
local function lose(id, run, dice, why)
  if run.stop_at_ms then return conclude_stopped(id, run, 'lose', true) end
  local policy = retry_policy(run)
  local spent = tonumber(call('HGET', run.key, 'crashes') or 0)
  if spent >= policy.crashes or policy.final.lost then return end_with(id, run, 'lose', 'failed', 'lost', why, true) end
  local state = 'pending'
  if spent > 0 then
    state = 'scheduled'
    run.due_at_ms = now + backoff_ms(policy, spent - 1, dice)
  end
  leave(id, run, 'lose', state, why, outcome_json('lost', why), '', 'crashes', spent + 1)
end

-- Give a run back, at no cost to it; used by a draining worker, and for what its worker never heard of.
local function release(id, run, reason, op)
  if run.stop_at_ms then
    conclude_stopped(id, run, 'release', not op)
  else
    run.due_at_ms = nil
    leave(id, run, 'release', 'pending', reason, nil, op or '')
  end
  return run.state
end

-- Let a blocked run go where it would have gone without its dependencies.
local function unblock(id, run)
  call('UNLINK', key_needs(id))
  if run.due_at_ms and run.due_at_ms > now then return move(id, run, 'unblock', 'scheduled', '', 'reason', 'delay') end
  move(id, run, 'unblock', 'pending', '', 'entry', enqueue(id, run), 'reason', '')
end

-- One dependency of a run has ended. A run that was forgotten and submitted again may not wait for it any more.
local function satisfy(id, parent, ended)
  local run = load(id)
  if not run or run.state ~= 'blocked' then return end
  if call('SREM', key_needs(id), parent) == 0 then return end
  local policy = call('HGET', run.key, 'on_failed') or 'skip'
  if ended ~= 'completed' and policy ~= 'run' then
    local state = policy == 'fail' and 'failed' or 'skipped'
    return end_with(id, run, 'skip', state, 'rejected', 'dependency ' .. parent .. ' is ' .. ended)
  end
  if call('EXISTS', key_needs(id)) == 0 and not call('HGET', run.key, 'open') then unblock(id, run) end
end

-- Make a run wait for others. Those that have ended already are in its needs too, until `satisfy` takes them out: so
-- the last one decides, whatever the order. Returns them.
local function await(id, parents)
  local ended = {}
  for _, parent in ipairs(parents) do
    local run = load(parent)
    call('SADD', key_needs(id), parent)
    if is_ended(run) then
      ended[#ended + 1] = { id = parent, state = run.state }
    else
      call('ZADD', key_dependents(parent), 0, id)
      if not run.dependents then call('HSET', run.key, 'dependents', 1, 'more', 1) end
    end
  end
  return ended
end

-- The first of the given runs that does not exist.
local function first_missing(ids)
  for _, id in ipairs(ids) do
    if call('EXISTS', key_run(id)) == 0 then return id end
  end
end

-- Tell the dependents of ended runs, a bounded number in one call; the settler goes on with the rest.
local function settle(budget)
  while #unsettled > 0 do
    local parent = table.remove(unsettled)
    local children = budget > 0 and call('ZPOPMIN', key_dependents(parent.id), budget) or {}
    budget = budget - #children / 2
    for at = 1, #children, 2 do satisfy(children[at], parent.id, parent.state) end
    if call('EXISTS', key_dependents(parent.id)) == 1 then
      call('ZADD', key_settling(), 'NX', now, parent.id)
      soonest = now
    else
      call('ZREM', key_settling(), parent.id)
    end
  end
end

-- Acknowledge and delete entries of a lane. Where older ones live on, deleting the one that was read last would turn the
-- group's lag, which autoscalers and dashboards read, into nil: that one is spared until more has been read.
local function erase(lane, entries)
  local key = key_lane(lane)
  local group, spared = redis.pcall('XINFO', 'GROUPS', key)[1], call('HGET', key_spared(), lane)
  local last_read, doomed, kept = group and group[8], {}, nil
  if spared then entries[#entries + 1] = spared end
  for _, entry in ipairs(entries) do
    if entry == last_read then kept = entry else doomed[#doomed + 1] = entry end
  end
  each_chunk(entries, 1000, function(...) call('XACK', key, 'workers', ...) end)
  each_chunk(doomed, 1000, function(...) call('XDEL', key, ...) end)
  local oldest = kept and call('XRANGE', key, '-', '+', 'COUNT', 1)[1]
  if kept and (not oldest or oldest[1] == kept) then
    call('XDEL', key, kept)
    kept = nil
  end
  if kept ~= (spared or nil) then
    if kept then call('HSET', key_spared(), lane, kept) else call('HDEL', key_spared(), lane) end
  end
end

-- Whoever keeps the promoter sleeps until the first timer; a worker that does is told of an earlier one.
local function ring_promoter()
  local first = call('ZRANGE', key_timers(), 0, 0, 'WITHSCORES')
  if first[2] and tonumber(first[2]) <= soonest then return end
  local keeper = call('GET', key_duty('promoter'))
  if keeper and call('ZSCORE', key_workers(), keeper) then
    call('XADD', key_inbox(keeper), '*', 'order', 'timers', 'run', '', 'fence', '', 'detail', soonest)
  end
end

local function close_timers()
  if soonest then ring_promoter() end
  local set, unset = {}, {}
  for id, at in pairs(timers) do
    if at then
      set[#set + 1] = at
      set[#set + 1] = id
    else
      unset[#unset + 1] = id
    end
  end
  each_chunk(set, 1000, function(...) call('ZADD', key_timers(), ...) end)
  each_chunk(unset, 1000, function(...) call('ZREM', key_timers(), ...) end)
  timers, soonest = {}, nil
end

local function close()
  if #unsettled > 0 then settle(SETTLE_A_CALL) end
  for lane, entries in pairs(acked) do erase(lane, entries) end
  for worker, ids in pairs(unheld) do
    each_chunk(ids, 1000, function(...) call('HDEL', key_holds(worker), ...) end)
  end
  close_index()
  close_timers()
end
