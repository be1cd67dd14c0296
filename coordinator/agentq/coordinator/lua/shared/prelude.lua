--[[ What every script shares. Before it stand, made from the Python tables: `base` and the key builders (keys.py), the
limits (limits.py), ARROWS of this script's verbs and BUDGETS (lifecycle.py). After it stand lanes.lua, what the script
USES, and the script as the body of `main`; `flush_writes` then carries out what was put off, so that a batch costs few
commands. ]]

local call = redis.call
-- The time, if it is told, and behind a space the token that asks, if one does, and the queues that it is good for, if
-- not for all. An id like 12e456789012 reads as a number too, so the two are told apart by the space.
local given_ms, made_by, readable_queues = string.match(ARGV[1], '^(%d*) ?(%w*) ?(.*)$')
local now = tonumber(given_ms)
if not now then
  local time = call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end

-- `now` as text: to pass a number to a command costs far more.
local stamp = string.format('%.0f', now)
local forget_at = string.format('%.0f', now + KEEP_MS)

-- Writes that `flush_writes` does for all runs of the call at once.
local reindexed, index_removals, index_additions, timers = {}, {}, {}, {}
local acked_entries, released_holds, lanes_to_refill, ended_counts = {}, {}, {}, {}
local earliest_timer = nil

-- The events that `append_event` has collected.
local pending_event = nil

-- Functions of the shared files to call before the writes are flushed.
local flush_hooks = {}

local function queue_of(lane) return string.match(lane, '^[^:]*') end

local function non_empty(value)
  if value == '' then return false end
  return value
end

local function push(lists, name, item)
  local list = lists[name]
  if list then list[#list + 1] = item else lists[name] = { item } end
end

local function json(value) return cjson.encode(value) end

local function outcome_json(class, message) return '{"class":"' .. class .. '","error":' .. json(message) .. '}' end

-- Read the fields of a run that verbs need; nil if it does not exist. Rare fields are read only if `extended` is set.
local function load(id)
  local key = key_run(id)
  local f = call('HMGET', key, 'state', 'lane', 'entry', 'attempt', 'fence', 'worker', 'extended')
  if not f[1] then return nil end
  local run = { key = key, state = f[1], lane = f[2], entry = f[3], attempt = tonumber(f[4] or 0), fence = f[5],
    worker = f[6] }
  if f[7] then
    local m = call('HMGET', key, 'operation', 'stop_at_ms', 'due_at_ms', 'keep_ms', 'dedupe_key', 'has_dependents', 'reason',
      'expires_at_ms', 'limits', 'reserved', 'fair_key', 'parent', 'has_signals_or_children', 'schedule', 'turn_of', 'pinned_host', 'own_host_demand', 'transcript_of', 'merge_queue',
      'plan', 'task', 'all_dependencies', 'retry_pass')
    run.operation, run.stop_at_ms, run.due_at_ms, run.keep_ms = m[1], tonumber(m[2] or nil), tonumber(m[3] or nil), m[4]
    run.dedupe_key, run.has_dependents, run.reason = m[5], m[6], non_empty(m[7])
    run.expires_at_ms = run.attempt == 0 and tonumber(m[8] or nil)
    run.limits, run.reserved, run.fair_key = m[9], m[10], m[11]
    run.parent, run.has_signals_or_children, run.schedule = m[12], m[13], m[14]
    run.turn_of, run.pinned_host, run.own_host_demand, run.transcript_of, run.merge_queue = m[15], m[16], m[17], m[18], m[19]
    -- A plan counts only its tasks, not other runs with its label.
    run.plan, run.task, run.all_dependencies, run.retry_pass = m[21] and m[20], m[21], m[22], m[23]
  end
  return run
end

local event_cache = {}

-- The event of one transition, as `;verb from to event` in ARROWS; nil if there is no such transition.
local function event_of(verb, from, to)
  local arrow = verb .. ' ' .. from .. ' ' .. to
  local event = event_cache[arrow]
  if event == nil then
    event = string.match(ARROWS, ';' .. arrow .. ' ([%w_]+)') or false
    event_cache[arrow] = event
  end
  return event
end

-- Whether a verb is legal in a state.
local function is_verb_allowed(verb, from)
  local source = verb .. from
  local found = event_cache[source]
  if found == nil then
    found = string.find(ARROWS, ';' .. verb .. ' ' .. from .. ' ', 1, true) ~= nil
    event_cache[source] = found
  end
  return found
end

local function is_held(run) return run.state == 'claimed' or run.state == 'running' end

local function is_end_state(state)
  return state == 'completed' or state == 'failed' or state == 'cancelled' or state == 'skipped'
end

local function is_ended(run) return is_end_state(run.state) end

-- Load a run for a verb of its worker, or return the refusal. A repeated verb is `ok`: it finds its mark in
-- `operation`, or, where the worker itself ended the attempt, the run in a state that the verb leads to.
local function load_held(id, fence, verb)
  local run = load(id)
  if not run then return nil, 'not_found' end
  if run.fence ~= fence then return nil, run.operation == verb .. ' ' .. fence and 'ok' or 'fenced' end
  if is_verb_allowed(verb, run.state) then return run end
  local led_here = event_of(verb, 'claimed', run.state) or event_of(verb, 'running', run.state)
  return nil, led_here and 'ok' or 'wrong_state ' .. run.state
end

local text_cache = {}

-- A small number as text, which costs a command far less than the number.
local function text_of(number)
  local text = text_cache[number]
  if not text then
    text = tostring(number)
    text_cache[number] = text
  end
  return text
end

-- Append the collected events to the stream; returns the id of the entry.
local function flush_events()
  local last = pending_event
  if not last then return nil end
  pending_event = nil
  return call('XADD', key_events(), 'MAXLEN', '~', tostring(EVENTS_KEPT), '*', 'event', last.event,
    'run', table.concat(last.runs, ' '), 'state', last.state, 'attempt', table.concat(last.attempts, ' '),
    'worker', last.worker, 'detail', last.detail)
end

-- Collect an event. Consecutive runs with the same event share one entry of the stream.
local function append_event(event, id, state, run, detail)
  local worker, last = run.worker or '', pending_event
  detail = detail or ''
  if not last or last.event ~= event or last.state ~= state or last.worker ~= worker or last.detail ~= detail
    or #last.runs == EVENTS_PER_ENTRY then
    flush_events()
    last = { event = event, state = state, worker = worker, detail = detail, runs = {}, attempts = {} }
    pending_event = last
  end
  local place = #last.runs + 1
  last.runs[place], last.attempts[place] = id, text_of(run.attempt or 0)
end

-- Append an event of a worker, which belongs to no run.
local function append_worker_event(event, worker, why) append_event(event, '', '', { worker = worker }, why) end

-- The next deadline of a run in its present state. `expires_at_ms`, by which a run must have started, counts only until
-- its first attempt.
local function next_timer(run)
  local state = run.state
  if run.stop_at_ms then return run.stop_at_ms end
  if state == 'scheduled' then return math.min(run.due_at_ms, run.expires_at_ms or run.due_at_ms) end
  if state == 'waiting' then return run.due_at_ms end
  if state == 'pending' or state == 'blocked' then return run.expires_at_ms end
  return nil
end

-- Set the timer of a run that has not ended.
local function set_timer(id, at)
  timers[id] = at
  earliest_timer = math.min(earliest_timer or at, at)
end

-- Make a timer due at once, to continue work that one call could not finish. Its time is long past by any clock, so the
-- work does not wait if the clock is set back.
local function set_timer_now(id) set_timer(id, 1) end

-- Record an object that a token created, after its earlier ones.
local function note_share(kind, name)
  if made_by == '' then return end
  local last = call('ZRANGE', key_made_by_token(made_by, kind), -1, -1, 'WITHSCORES')[2] or 0
  call('ZADD', key_made_by_token(made_by, kind), last + 1, name)
  call('PEXPIRE', key_made_by_token(made_by, kind), TOKEN_ITEMS_KEPT_MS)
end

-- The refusal of one more object of a kind for a token that has created half of the maximum `most`. Each call checks
-- some of the token's objects, and removes those that no longer exist.
local function refuse_share(kind, most, is_there)
  local share = math.ceil(most / 2)
  if made_by == '' or call('ZCARD', key_made_by_token(made_by, kind)) < share then return nil end
  for _, name in ipairs(call('ZRANGE', key_made_by_token(made_by, kind), 0, TOKEN_ITEMS_PER_CALL - 1)) do
    if is_there(name) then note_share(kind, name) else call('ZREM', key_made_by_token(made_by, kind), name) end
  end
  local number = call('ZCARD', key_made_by_token(made_by, kind))
  return number >= share and 'too_many_for_token ' .. number .. ' ' .. kind or nil
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

local function flush_indexes()
  for name, ids in pairs(index_removals) do each_chunk(ids, 1000, function(...) call('ZREM', name, ...) end) end
  for name, scored in pairs(index_additions) do each_chunk(scored, 1000, function(...) call('ZADD', name, ...) end) end
  reindexed, index_removals, index_additions = {}, {}, {}
end

local function defer_index_add(name, id)
  local list = index_additions[name]
  if not list then
    list = {}
    index_additions[name] = list
  end
  local place = #list
  list[place + 1], list[place + 2] = '0', id
end

-- Move a run from one index to another, in the next flush. Moves keep their order: a run that moves a second time in
-- one call finds the first move done.
local function reindex(id, run, from, to)
  if reindexed[id] then flush_indexes() end
  reindexed[id] = true
  if from then
    push(index_removals, index_name(run.lane, from), id)
    push(index_removals, key_states(from), id)
  end
  if to then
    defer_index_add(index_name(run.lane, to), id)
    defer_index_add(key_states(to), id)
  end
  if run.plan and from then push(index_removals, key_plan_index(run.plan, from), id) end
  if run.plan and to then defer_index_add(key_plan_index(run.plan, to), id) end
end

-- Do one transition of a run: state, further fields, index, timer and event.
local function transition(id, run, verb, state, detail, ...)
  local event = event_of(verb, run.state, state)
  if not event then error('no arrow ' .. verb .. ' from ' .. run.state .. ' to ' .. state) end
  local from, had_timer = run.state, timers[id] or next_timer(run) or is_ended(run)
  call('HSET', run.key, 'state', state, ...)
  run.state = state
  if from ~= state then reindex(id, run, from, state) end
  local timer = next_timer(run)
  if timer then set_timer(id, timer) elseif had_timer then timers[id] = false end
  append_event(event, id, state, run, detail)
end

-- Wake a process for its timers: a worker by an order in its inbox, a server by the key `bell`.
local function wake_duties(owner, at)
  if call('ZSCORE', key_workers(), owner) then
    call('XADD', key_worker_inbox(owner), '*', 'order', 'timers', 'run', '', 'fence', '', 'detail', at)
  else
    call('XADD', key_duty_wakeup(), 'MAXLEN', '1', '*', 'at', at)
  end
end

-- The keeper of the duties sleeps until the first deadline that it knows of; wake it for an earlier one.
local function notify_duty_owner(times, at)
  local first = call('ZRANGE', times, 0, 0, 'WITHSCORES')
  if first[2] and tonumber(first[2]) <= at then return end
  local keeper = call('GET', key_duty_owner())
  if keeper then wake_duties(keeper, at) end
end

-- Release the duties if this process keeps them, and wake the standby, which takes them at once.
local function release_duties(owner)
  local standby = call('HGET', key_reaper_watch(), 'standby')
  if standby == owner then call('HDEL', key_reaper_watch(), 'standby') end
  if call('GET', key_duty_owner()) ~= owner then return end
  call('UNLINK', key_duty_owner())
  if standby and standby ~= owner then wake_duties(standby, now) end
end

local function flush_timers()
  if earliest_timer then notify_duty_owner(key_timers(), earliest_timer) end
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
  timers, earliest_timer = {}, nil
end

local function flush_writes()
  for _, finish in ipairs(flush_hooks) do finish() end
  for lane in pairs(lanes_to_refill) do refill_lane(lane, 1) end
  for lane, entries in pairs(acked_entries) do delete_entries(lane, entries) end
  for worker, ids in pairs(released_holds) do
    each_chunk(ids, 1000, function(...) call('HDEL', key_worker_runs(worker), ...) end)
  end
  for worker, number in pairs(ended_counts) do
    -- Without an epoch the record is gone, and a count alone would never be deleted.
    if call('HEXISTS', key_worker(worker), 'epoch') == 1 then call('HINCRBY', key_worker(worker), 'runs_ended', number) end
  end
  acked_entries, released_holds, lanes_to_refill, ended_counts = {}, {}, {}, {}
  flush_indexes()
  flush_timers()
  flush_events()
end
