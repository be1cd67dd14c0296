--[[ Ends attempts and runs, and notifies the dependents, the next turn, and the runs that wait for capacity under a
limit. ]]

local unnotified_runs = {}

-- Take a held run from its lane and from its worker.
local function detach_from_worker(id, run)
  push(acked_entries, run.lane, run.entry)
  push(released_holds, run.worker, id)
  run.entry = ''
  release_limits(id, run)
  if run.merge_queue then leave_merge_queue(id, run) end
end

-- Count an attempt that its worker reports as ended.
local function count_ended(run) ended_counts[run.worker] = (ended_counts[run.worker] or 0) + 1 end

-- The record of the attempt that ends, as a field and its value; deletes the oldest record.
local function archive_attempt(run, verb, outcome)
  if run.attempt > ATTEMPTS_KEPT then call('HDEL', run.key, 'attempt:' .. (run.attempt - ATTEMPTS_KEPT)) end
  local times = call('HMGET', run.key, 'claimed_at_ms', 'started_at_ms')
  return 'attempt:' .. run.attempt, '{"attempt":' .. run.attempt .. ',"worker":' .. json(run.worker or '')
    .. ',"claimed_at_ms":' .. (times[1] or 'null')
    .. ',"started_at_ms":' .. (times[2] or 'null')
    .. ',"ended_at_ms":' .. stamp .. ',"verb":"' .. verb .. '"'
    .. ',"outcome":' .. (outcome or 'null') .. '}'
end

-- The id of the run that has a dedupe key, and the run if it is live: a key can stay taken for a while after the end.
local function dedupe_holder(key)
  local id, taken_until = string.match(call('GET', key_dedupe(key)) or '', '^(%S+) ?(%d*)$')
  if not id then return nil end
  if taken_until ~= '' then return tonumber(taken_until) > now and id or nil end
  local run = load(id)
  return run and id, run
end

-- Pass the dedupe key of a run that ends to its follower, keep it for a while, or free it.
local function pass_on_dedupe_key(id, run)
  local key = key_dedupe(run.dedupe_key)
  if call('GET', key) ~= id then return end
  local f = call('HMGET', run.key, 'follower', 'dedupe_until_ms')
  local follower, taken_until = f[1] and load(f[1]), tonumber(f[2] or 0)
  if follower and not is_ended(follower) then
    call('SET', key, f[1])
  elseif taken_until > now then
    -- The time in the value decides; the TTL only deletes the key later.
    call('SET', key, id .. ' ' .. f[2], 'PX', string.format('%.0f', taken_until - now + OPEN_SUBMIT_MS))
  else
    call('DEL', key)
  end
end

-- End a run. The fence stays if its own worker ended it, and is deleted if it was `taken` from the worker, so that
-- later reports of the worker are refused as fenced.
local function end_run(id, run, verb, state, why, outcome, taken)
  if is_held(run) then detach_from_worker(id, run) elseif run.reserved then release_limits(id, run) end
  if run.state == 'blocked' then leave_waiters(id, run) end
  leave_fair_queue(id, run)
  if run.reason or run.stop_at_ms then call('HDEL', run.key, 'reason', 'stop_at_ms', 'dependencies_open') end
  if taken then call('HSET', run.key, 'fence', '') end
  run.stop_at_ms = nil
  transition(id, run, verb, state, why, 'outcome', outcome, 'finished_at_ms', stamp)
  timers[id] = run.keep_ms and now + run.keep_ms or forget_at
  if run.dedupe_key then pass_on_dedupe_key(id, run) end
  if run.schedule then call('ZREM', key_schedule_runs(run.schedule), id) end
  if run.parent then notify_parent(id, run) end
  if run.turn_of then remove_turn(id, run) end
  if run.plan then apply_task_end(id, run) end
  if run.transcript_of then
    -- No attempt continues it: if the run is requeued, it starts a new conversation.
    call('HDEL', run.key, 'transcript_of')
    call('UNLINK', key_transcript(id))
  end
  local leaves_children = run.has_signals_or_children and clear_signals_and_children(id, run)
  if run.has_dependents or leaves_children then unnotified_runs[#unnotified_runs + 1] = { id = id, state = state } end
end

-- End an attempt of a run that continues; the fence is deleted, so that a worker that still executes it is refused.
local function end_attempt(id, run, verb, state, reason, outcome, operation, ...)
  local record, value = archive_attempt(run, verb, outcome)
  call('HDEL', run.key, 'started_at_ms', 'progress', 'progress_number', 'wake_requested', 'stop_at_ms')
  detach_from_worker(id, run)
  run.fence, run.stop_at_ms, run.lane = '', nil, next_lane(run)
  local entry = state == 'pending' and enqueue(id, run) or ''
  transition(id, run, verb, state, reason, 'entry', entry, 'fence', '', 'worker', '', 'lane', run.lane, 'operation', operation,
    'reason', reason, 'due_at_ms', run.due_at_ms or '', 'extended', 1, record, value, ...)
end

-- End a run for a reason of the server, not with an outcome that its worker reports.
local function end_run_because(id, run, verb, state, class, why, taken)
  end_run(id, run, verb, state, why, outcome_json(class, why), taken)
end

-- Order the worker of a held run to stop it; the run ends when the worker confirms, or after `stop_ms`.
local function order_stop(id, run, reason, stop_ms)
  run.stop_at_ms = now + stop_ms
  transition(id, run, 'cancel', run.state, reason, 'extended', 1, 'stop_at_ms', run.stop_at_ms, 'reason', 'stopping: ' .. reason)
  call('XADD', key_worker_inbox(run.worker), '*', 'order', 'stop', 'run', id, 'fence', run.fence, 'detail', reason)
end

local function end_stopped_run(id, run, verb, taken)
  end_run_because(id, run, verb, 'cancelled', 'cancelled', 'cancelled on request', taken)
end

local function retry_policy(run)
  local text = call('HGET', run.key, 'retry')
  return text and cjson.decode(text) or {}
end

local function is_in_list(name, list)
  for _, each in ipairs(list) do
    if each == name then return true end
  end
  return false
end

-- The budget that pays for a retry after a failure of a class, as the field that counts it, and its size; nil if there
-- is none. A class with a number of its own has a budget of its own.
local function retry_budget(policy, class)
  local budget = string.match(BUDGETS, ' ' .. class .. '=(%w+)')
  if not budget or is_in_list(class, policy.final or {}) then return nil end
  local own = policy.classes and policy.classes[class]
  if own and own.retries then return 'spent:' .. class, own.retries end
  if budget == 'failures' and policy.only and not is_in_list(class, policy.only) then return nil end
  return budget, policy[budget] or ({ failures = FAILURES, crashes = CRASHES, deferrals = DEFERRALS })[budget]
end

-- The delay after a failure of a class: from the list, fixed, or exponential with full jitter. `random` is between 0
-- and 1, drawn by the caller.
local function backoff_ms(policy, class, spent, random)
  local own = policy.classes and policy.classes[class] or {}
  local function setting(name, default)
    if own[name] ~= nil then return own[name] end
    if policy[name] ~= nil then return policy[name] end
    return default
  end
  local delays = own.delays_ms or (not own.delay_ms and policy.delays_ms)
  if delays and #delays > 0 then return delays[math.min(spent + 1, #delays)] end
  local first, factor = setting('delay_ms', DELAY_MS), setting('factor', DELAY_FACTOR)
  if factor == 1 then return first end
  local most = math.max(first, setting('delay_ms_max', BACKOFF_MS_MAX))
  local ceiling = math.min(first * factor ^ math.min(spent, 60), most)
  return math.max(1, math.floor(setting('jitter', true) and ceiling * tonumber(random) or ceiling))
end

-- Whether an attempt at a time would begin too late for its policy.
local function is_too_late(run, policy, at)
  if not policy.max_elapsed_ms then return false end
  local since = call('HMGET', run.key, 'requeued_at_ms', 'submitted_at_ms')
  return at > tonumber(since[1] or since[2]) + policy.max_elapsed_ms
end

-- The reaper's verb: the worker of this attempt is gone, or does not know of it. After the first loss the run is
-- pending at once. A function run that was not reported as started, and is not `late`, has most likely waited behind
-- others in the worker: it is pending at once and pays from another budget, unless its policy allows no retry.
local function lose_attempt(id, run, random, why, late)
  if run.stop_at_ms then return end_stopped_run(id, run, 'lose', true) end
  local policy = retry_policy(run)
  local budget, most = retry_budget(policy, 'lost')
  local waited = budget and most > 0 and run.state == 'claimed' and is_function_lane(run.lane) and not late
  if waited then budget, most = 'lost_before_start', LOSSES_BEFORE_START end
  local spent = budget and tonumber(call('HGET', run.key, budget) or 0)
  local at_once = waited or spent == 0
  local due_at = budget and not at_once and now + backoff_ms(policy, 'lost', spent - 1, random) or now
  if not budget or spent >= most or is_too_late(run, policy, due_at) then
    return end_run_because(id, run, 'lose', 'failed', 'lost', why, true)
  end
  if not at_once then run.due_at_ms = due_at end
  end_attempt(id, run, 'lose', at_once and 'pending' or 'scheduled', why, outcome_json('lost', why), '', budget, spent + 1)
end

-- A worker's verb: an attempt failed. Returns the reply.
local function fail_attempt(id, run, fence, class, outcome, random, delay_ms)
  if run.stop_at_ms or class == 'cancelled' then
    end_run(id, run, 'fail', 'cancelled', class, outcome)
    return 'ok cancelled'
  end
  local policy = retry_policy(run)
  local budget, most = retry_budget(policy, class)
  local spent = budget and tonumber(call('HGET', run.key, budget) or 0)
  if budget and spent < most then
    run.due_at_ms = now + (tonumber(delay_ms) or backoff_ms(policy, class, spent, random))
    if not is_too_late(run, policy, run.due_at_ms) then
      end_attempt(id, run, 'fail', 'scheduled', 'retry after ' .. class, outcome, 'fail ' .. fence, budget, spent + 1)
      return 'ok scheduled'
    end
  end
  end_run(id, run, 'fail', 'failed', class, outcome)
  return 'ok failed'
end

-- Release a run without spending an attempt; for a draining worker, and for runs that their worker never received.
local function release_run(id, run, reason, operation)
  if run.stop_at_ms then
    end_stopped_run(id, run, 'release', not operation)
  else
    run.due_at_ms = nil
    end_attempt(id, run, 'release', 'pending', reason, nil, operation or '')
  end
  return run.state
end

-- Unblock a run: it becomes scheduled or pending; a turn waits for the turns before it.
local function unblock_run(id, run)
  call('UNLINK', key_dependencies(id))
  if run.turn_of and first_turn(run.turn_of) ~= id then return call('HSET', run.key, 'reason', 'turn') end
  run.lane = next_lane(run)
  if run.due_at_ms and run.due_at_ms > now then
    return transition(id, run, 'unblock', 'scheduled', '', 'reason', 'delay', 'lane', run.lane)
  end
  transition(id, run, 'unblock', 'pending', '', 'entry', enqueue(id, run), 'reason', '', 'lane', run.lane)
end

-- One dependency of a run has ended. A run that was deleted and submitted again may no longer wait for it.
local function resolve_dependency(id, parent, ended)
  local run = load(id)
  if not run or run.state ~= 'blocked' then return end
  if call('SREM', key_dependencies(id), parent) == 0 then return end
  local policy = ended ~= 'completed' and (call('HGET', run.key, 'on_failed') or 'skip') or 'run'
  if policy ~= 'run' and call('HGET', run.key, 'follows') ~= parent then
    local stopped = run.plan and stop_reason(run.plan)
    if stopped then return end_run_because(id, run, 'cancel', 'cancelled', 'cancelled', stopped) end
    local state = policy == 'fail' and 'failed' or 'skipped'
    return end_run_because(id, run, 'skip', state, 'rejected', 'dependency ' .. parent .. ' is ' .. ended)
  end
  if call('EXISTS', key_dependencies(id)) == 0 and not call('HGET', run.key, 'dependencies_open') then unblock_run(id, run) end
end

-- Make a run wait for others. Those that have ended already are added too, until `resolve_dependency` removes them, so
-- that the last one decides, in any order. Returns the ended ones.
local function add_dependencies(id, parents)
  local ended = {}
  for _, parent in ipairs(parents) do
    local run = load(parent)
    call('SADD', key_dependencies(id), parent)
    if is_ended(run) then
      ended[#ended + 1] = { id = parent, state = run.state }
    else
      call('ZADD', key_dependents(parent), 0, id)
      if not run.has_dependents then call('HSET', run.key, 'has_dependents', 1, 'extended', 1) end
    end
  end
  return ended
end

-- The first of the given runs that does not exist.
local function first_missing_run(ids)
  for _, id in ipairs(ids) do
    if call('EXISTS', key_run(id)) == 0 then return id end
  end
end

-- Notify the dependents of ended runs, and cancel their children, a bounded number in one call; the duty
-- `notify_dependents` continues with the rest.
local function notify_dependents(budget)
  while #unnotified_runs > 0 do
    local parent = table.remove(unnotified_runs)
    local children = budget > 0 and call('ZPOPMIN', key_dependents(parent.id), budget) or {}
    budget = budget - #children / 2
    for at = 1, #children, 2 do resolve_dependency(children[at], parent.id, parent.state) end
    budget = budget - cancel_children(parent.id, parent.state, budget)
    if call('EXISTS', key_dependents(parent.id), key_children(parent.id)) > 0 then
      call('ZADD', key_dependents_to_notify(), 'NX', now, parent.id)
      earliest_timer = now
    else
      call('ZREM', key_dependents_to_notify(), parent.id)
    end
  end
end

flush_hooks[#flush_hooks + 1] = function()
  if next(plans_to_stop) then stop_tasks_of_plans() end
  if #freed_limits > 0 then admit_waiters(ADMITTED_PER_CALL) end
  if #unnotified_runs > 0 then notify_dependents(DEPENDENTS_PER_CALL) end
  if next(sessions_to_advance) then unblock_next_turns() end
  if #freed_limits > 0 then admit_waiters(0) end
  if next(plans_to_check) then end_plans_if_done() end
end
