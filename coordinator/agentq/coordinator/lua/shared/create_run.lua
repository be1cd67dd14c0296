--[[ Creates runs: all decisions at submit. ]]

local known_queues = {}

-- The refusal of a run in a new queue if the maximum number of queues is reached.
local function refuse_queue(queue)
  if known_queues[queue] == nil then known_queues[queue] = call('SISMEMBER', key_queues(), queue) == 1 end
  local number = not known_queues[queue] and call('SCARD', key_queues())
  if number and number >= QUEUES then return 'too_many_queues ' .. number end
  return number and refuse_share('queues', QUEUES, function(name) return call('SISMEMBER', key_queues(), name) == 1 end)
end

local function write_run(id, lane, spec, run, reason, options)
  local key, queue = run.key, queue_of(lane)
  if not known_queues[queue] then
    if call('SADD', key_queues(), queue) == 1 then note_share('queues', queue) end
    known_queues[queue] = true
  end
  call('HSET', key, 'spec', spec, 'state', run.state, 'lane', lane, 'entry', run.entry, 'submitted_at_ms', stamp)
  local by, within = made_by, readable_queues
  if options and options.parent and (options.fence or by == '') then
    local parent = call('HMGET', key_run(options.parent), 'made_by', 'readable_queues')
    by, within = parent[1] or by, options.fence and parent[2] or within
  end
  if by ~= '' then call('HSET', key, 'made_by', by) end
  -- The queues whose results it may read; see run/read_results.lua.
  if within ~= '' then call('HSET', key, 'readable_queues', within) end
  if options then
    call('HSET', key, 'extended', 1)
    for _, name in ipairs({ 'on_failed', 'dedupe_key', 'plan', 'session', 'retry', 'keep_ms', 'limits', 'fair_key', 'parent',
      'children', 'schedule' }) do
      if options[name] then call('HSET', key, name, options[name]) end
    end
    if run.turn_of then call('HSET', key, 'turn_of', run.turn_of, 'agent', options.agent) end
    if reason ~= '' then call('HSET', key, 'reason', reason) end
    if run.due_at_ms then call('HSET', key, 'due_at_ms', run.due_at_ms) end
    if run.expires_at_ms then call('HSET', key, 'expires_at_ms', run.expires_at_ms) end
    if options.open then call('HSET', key, 'dependencies_open', 1) end
    if options.schedule then call('ZADD', key_schedule_runs(options.schedule), 0, id) end
  end
  reindex(id, run, nil, run.state)
  local timer = next_timer(run)
  if timer then set_timer(id, timer) end
  append_event('submitted', id, run.state, run)
  if run.state == 'blocked' and not awaited_limit(run) then call('HSET', key, 'blocked_event_id', flush_events()) end
end

-- The time of the first submit that debounced a run.
local function debounced_since(run)
  local f = call('HMGET', run.key, 'debounced_since_ms', 'submitted_at_ms')
  return tonumber(f[1] or f[2])
end

local function load_live(id)
  local run = id and load(id)
  return run and not is_ended(run) and run or nil
end

-- Whether two specs are equal except for the trace, so that a repeated submit is the same run.
local function is_same_spec(spec, other)
  if spec == other then return true end
  local function without_trace(text)
    return (string.gsub(string.gsub(text, ',"traceparent":"[^"]*"', ''), ' 00%-%x+%-%x+%-%x%x$', ''))
  end
  return without_trace(spec) == without_trace(other)
end

-- Decide about a run by its dedupe key: `word` refuses it; else the runs it replaces, and the run it follows.
local function resolve_duplicate(options, spec)
  local holder, run = dedupe_holder(options.dedupe_key)
  local mode = options.if_live
  if not holder then return {} end
  if mode == 'reject' then return { word = 'duplicate ' .. holder } end
  if not run or not (mode == 'replace' or mode == 'follow' or mode == 'debounce') then return { word = 'exists ' .. holder } end
  local next_one = call('HGET', run.key, 'follower')
  local waiting = load_live(next_one)
  local late = mode == 'debounce' and options.debounce_max_ms and now >= debounced_since(run) + options.debounce_max_ms
  if run.attempt == 0 and not late then
    if mode == 'follow' and is_same_spec(call('HGET', run.key, 'spec'), spec) then return { word = 'exists ' .. holder } end
    return { replaces = { waiting and next_one, holder }, since = debounced_since(run) }
  end
  if mode == 'replace' then return { word = 'exists ' .. holder } end
  if not waiting then return { follows = run, id = holder } end
  if mode == 'follow' and is_same_spec(call('HGET', waiting.key, 'spec'), spec) then return { word = 'exists ' .. next_one } end
  return { follows = run, id = holder, replaces = { next_one }, since = debounced_since(waiting) }
end

-- Take the dedupe key, or become the follower of the run that has it.
local function take_dedupe_key(id, options, placement)
  if placement.follows then
    call('HSET', placement.follows.key, 'follower', id)
    if not is_in_list(placement.id, options.after or {}) then call('HSET', key_run(id), 'follows', placement.id) end
  else
    call('SET', key_dedupe(options.dedupe_key), id)
  end
  if options.dedupe_ttl_ms then
    call('HSET', key_run(id), 'dedupe_until_ms', string.format('%.0f', now + options.dedupe_ttl_ms))
  end
  if options.if_live == 'debounce' then
    call('HSET', key_run(id), 'debounced_since_ms', string.format('%.0f', placement.since or now))
  end
end

-- Enqueue a run, or block it if one of its limits has no capacity; returns why it must not wait either.
local function enqueue_or_block(id, run)
  local needs = limits_of(run)
  local key, when
  if needs then key, when = first_full_limit(needs) end
  if not key then
    enqueue(id, run)
    return nil
  end
  local unwanted = apply_when_full(id, key)
  run.state, run.reason = 'blocked', 'limit ' .. key
  join_waiters(id, run, key)
  if when then set_timer(run.reason, when) end
  return unwanted
end

local function awaited_runs(options, placement)
  local parents = { unpack(options.after or {}) }
  if placement.follows then parents[#parents + 1] = placement.id end
  return parents
end

local function create_with_options(id, lane, spec, options)
  local orphan = first_missing_run(options.after or {})
  if orphan then return 'no_dependency ' .. orphan end
  local excess = refuse_units(options.limits)
  if excess then return excess end
  local placement = options.dedupe_key and resolve_duplicate(options, spec) or {}
  local word = placement.word or (options.agent and refuse_turn(options.session, options.agent))
    or (options.parent and refuse_child(options.parent, placement.replaces or {}, options.max_children))
    or (options.task and refuse_task(id, options))
  if word then return word end
  if options.parent then add_child(id, options) end
  for _, other in pairs(placement.replaces or {}) do
    if other then end_run_because(other, load(other), 'cancel', 'cancelled', 'cancelled', 'replaced by ' .. id) end
  end
  local run = { key = key_run(id), lane = lane, entry = '', state = 'pending', due_at_ms = tonumber(options.due_at_ms),
    limits = options.limits, fair_key = options.fair_key, parent = options.parent, turn_of = options.agent and options.session,
    plan = options.task and options.plan }
  if run.turn_of then
    enqueue_turn(id, run)
    run.lane = next_lane(run)
  end
  if options.delay_ms then run.due_at_ms = now + options.delay_ms end
  if options.debounce_max_ms then run.due_at_ms = math.min(run.due_at_ms, (placement.since or now) + options.debounce_max_ms) end
  if options.open then
    run.expires_at_ms = now + OPEN_SUBMIT_MS
  elseif options.expires_ms then
    run.expires_at_ms = now + options.expires_ms
  end
  local ended, reason, unwanted = {}, '', nil
  if options.after or options.open or placement.follows then
    ended, run.state = add_dependencies(id, awaited_runs(options, placement)), 'blocked'
    reason = (options.after or options.open) and 'dependency' or 'follows ' .. placement.id
  elseif run.turn_of and first_turn(run.turn_of) ~= id then
    run.state, reason = 'blocked', 'turn'
  elseif run.due_at_ms and run.due_at_ms > now then
    run.state, reason = 'scheduled', 'delay'
  else
    unwanted = enqueue_or_block(id, run)
    reason = run.reason or ''
  end
  write_run(id, run.lane, spec, run, reason, options)
  if options.dedupe_key then take_dedupe_key(id, options, placement) end
  if options.plan then call('ZADD', key_plan_runs(options.plan), 0, id) end
  if run.plan then add_task(id, run, options) end
  if options.session then call('ZADD', key_session_runs(options.session), 0, id) end
  if unwanted then end_run_because(id, load(id), 'cancel', 'cancelled', 'cancelled', unwanted) end
  for _, parent in ipairs(ended) do resolve_dependency(id, parent.id, parent.state) end
  return 'ok'
end

local has_closed_queues = nil

-- Whether a queue refuses new runs.
local function is_intake_closed(queue)
  if has_closed_queues == nil then has_closed_queues = call('EXISTS', key_intake_closed()) == 1 end
  return has_closed_queues and call('HEXISTS', key_intake_closed(), queue) == 1
end

-- Create a run, or find the run with its id. Without options, only its lane matters.
local function create_run(id, lane, spec, options)
  local key = key_run(id)
  local before = call('HGET', key, 'spec')
  if before then return is_same_spec(before, spec) and 'ok' or 'id_taken' end
  if is_intake_closed(queue_of(lane)) then return 'intake_closed ' .. queue_of(lane) end
  local excess = refuse_queue(queue_of(lane))
  if excess then return excess end
  if options or limits_of({ lane = lane }) then return create_with_options(id, lane, spec, options or {}) end
  local run = { key = key, lane = lane, state = 'pending' }
  enqueue(id, run)
  write_run(id, lane, spec, run)
  return 'ok'
end
