--[[ Requeues an ended run with fresh budgets and its history, and the tasks of its plan that were skipped because of
it. ]]

-- Why a run cannot be requeued, or nil.
local function refuse_requeue(id, run)
  if not is_ended(run) then return 'wrong_state ' .. run.state end
  if call('ZSCORE', key_dependents_to_notify(), id) then return 'notifying_dependents' end
  if run.plan then
    local f = call('HMGET', key_plan(run.plan), 'stop_state', 'end_state')
    if f[1] and not f[2] then return 'plan_stopping ' .. run.plan end
  end
  local refused = run.turn_of and refuse_turn(run.turn_of, call('HGET', run.key, 'agent'))
  if refused then return refused end
  local other = run.dedupe_key and dedupe_holder(run.dedupe_key)
  if other and other ~= id then return 'duplicate ' .. other end
end

-- The progress in its workspace, for the next attempt. If the run had completed, the commit that it delivered is known,
-- and its marker is looked for from that commit on.
local function previous_work(run, work, outcome)
  local noted = {}
  for name, value in pairs(cjson.decode(work)) do
    -- The outcome of its process and the conflict to fix belong to the time before the requeue.
    if type(value) == 'string' then noted[name] = value end
  end
  noted.step = 'requeued'
  local delivered = run.state == 'completed' and outcome and cjson.decode(outcome).work
  if delivered and delivered.merged and delivered.commit then noted.base = delivered.commit end
  return json(noted)
end

local function reset_run(run)
  local f = call('HMGET', run.key, 'outcome', 'merge_progress', 'spending')
  if run.attempt > 0 then
    local record, value = archive_attempt(run, 'requeue', f[1])
    call('HSET', run.key, record, value)
  end
  if f[2] then call('HSET', run.key, 'merge_progress', previous_work(run, f[2], f[1])) end
  if f[3] then call('HSET', run.key, 'earlier_spending', f[3]) end
  call('HDEL', run.key, 'outcome', 'finished_at_ms', 'failures', 'crashes', 'deferrals', 'claimed_at_ms',
    'started_at_ms', 'progress', 'progress_number', 'wake_requested', 'due_at_ms', 'expires_at_ms', 'reason', 'stop_at_ms', 'has_signals_or_children',
    'parked_at_ms', 'awaited_signals', 'awaited_children', 'alarm_at_ms', 'saved_state', 'delivered_to', 'ended_children_count', 'follows', 'follower',
    'lost_before_start')
  for class in pairs(retry_policy(run).classes or {}) do call('HDEL', run.key, 'spent:' .. class) end
  run.expires_at_ms, run.due_at_ms = nil, nil
end

-- The dependencies of a task that have not ended.
local function live_dependencies(run)
  local ids = {}
  for id in string.gmatch(run.all_dependencies or '', '%S+') do
    local state = call('HGET', key_run(id), 'state')
    if state and not is_end_state(state) then ids[#ids + 1] = id end
  end
  return ids
end

-- Requeue a run that may be requeued; returns its new state. A task waits for its dependencies that have not ended.
local function requeue_run(id, run, operation)
  if run.dedupe_key then call('SET', key_dedupe(run.dedupe_key), id) end
  if run.parent then readd_child(id, run) end
  reset_run(run)
  if run.schedule then call('ZADD', key_schedule_runs(run.schedule), 0, id) end
  if run.turn_of then
    enqueue_turn(id, run)
  else
    run.pinned_host = nil
    call('HDEL', run.key, 'agent_session', 'host', 'account', 'pinned_host', 'totals')
  end
  run.lane = next_lane(run)
  local parents = run.plan and live_dependencies(run) or {}
  local waits = #parents > 0 and 'dependency' or run.turn_of and first_turn(run.turn_of) ~= id and 'turn'
  if waits then call('HSET', run.key, 'reason', waits) end
  add_dependencies(id, parents)
  transition(id, run, 'requeue', waits and 'blocked' or 'pending', '', 'entry', waits and '' or enqueue(id, run), 'fence', '',
    'worker', '', 'lane', run.lane, 'operation', operation, 'extended', 1, 'requeued_at_ms', stamp)
  if waits then call('HSET', run.key, 'blocked_event_id', flush_events()) end
  if run.plan then reopen_plan(run.plan) end
  return run.state
end

local RETRY_SCOPES = { skipped = 1, failed = 2, all = 3 }

-- Start a walk through the ended tasks of a plan that requeues those that can be: the skipped, or also the failed, or
-- also the cancelled. Each is requeued once in a walk.
local function start_plan_retry(plan, scope)
  local key = key_plan(plan)
  if call('EXISTS', key) == 0 then return end
  local under_way = call('HGET', key, 'retry_scope')
  if under_way and RETRY_SCOPES[under_way] > RETRY_SCOPES[scope] then scope = under_way end
  call('HINCRBY', key, 'retry_pass', 1)
  call('HSET', key, 'retry_scope', scope, 'retry_cursor', '', 'retry_found', 0)
end

-- Whether no dependency of a task has ended without completing. A dependency that was deleted counts as completed,
-- unless the task was skipped.
local function can_requeue_task(run)
  if call('HGET', run.key, 'on_failed') == 'run' then return true end
  for id in string.gmatch(run.all_dependencies or '', '%S+') do
    local state = call('HGET', key_run(id), 'state')
    if state and state ~= 'completed' and is_end_state(state) then return false end
    if not state and run.state == 'skipped' then return false end
  end
  return true
end

local function requeue_task(id, number)
  local run = load(id)
  if not run or not is_ended(run) or run.state == 'completed' or not can_requeue_task(run) then return false end
  -- A task skipped during the walk is requeued again: its dependencies come later in the walk.
  if run.retry_pass == number and run.state ~= 'skipped' then return false end
  local refused = refuse_requeue(id, run)
  if refused then return refused == 'notifying_dependents' end
  call('HSET', run.key, 'retry_pass', number)
  requeue_run(id, run, '')
  return true
end

-- Continue a plan's walk, past up to `budget` tasks. It starts again as long as it finds any, since a task may come
-- before the one that it was skipped for. True when it is done.
local function continue_plan_retry(plan, budget)
  flush_indexes()
  local key = key_plan(plan)
  local f = call('HMGET', key, 'retry_scope', 'retry_pass', 'retry_cursor', 'retry_found')
  if not f[1] then return true end
  local at_state, after = string.match(f[3], '^(%S+) (%S+)$')
  local found = f[4] == '1'
  local states = ({ skipped = { 'skipped' }, failed = { 'failed', 'skipped' },
    all = { 'failed', 'cancelled', 'skipped' } })[f[1]]
  for _, state in ipairs(states) do
    if not at_state or at_state == state then
      local ids = call('ZRANGE', key_plan_index(plan, state), after and '(' .. after or '-', '+', 'BYLEX', 'LIMIT', 0,
        budget)
      for _, id in ipairs(ids) do found = requeue_task(id, f[2]) or found end
      if #ids == budget then
        call('HSET', key, 'retry_cursor', state .. ' ' .. (ids[budget] or after or '0'), 'retry_found', found and 1 or 0)
        continue_plan_later(plan)
        return false
      end
      budget, at_state, after = budget - #ids, nil, nil
    end
  end
  if found then
    call('HSET', key, 'retry_cursor', '', 'retry_found', 0)
    continue_plan_later(plan)
    return false
  end
  call('HDEL', key, 'retry_scope', 'retry_cursor', 'retry_found')
  clear_plan_timer(plan)
  plans_to_check[plan] = true
  return true
end

-- The timer of a plan is due: a stop or a retry continues, or the plan never got a task and is deleted.
local function run_plan_timer(plan)
  timers[plan_timer(plan)] = false
  local f = call('HMGET', key_plan(plan), 'created_at_ms', 'stop_state', 'end_state', 'retry_scope')
  if f[1] and call('EXISTS', key_plan_tasks(plan)) == 0 then
    call('UNLINK', key_plan(plan))
    call('ZREM', key_plans(), plan)
  elseif f[2] and not f[3] then
    stop_plan_tasks(plan, DEPENDENTS_PER_CALL)
  elseif f[4] then
    continue_plan_retry(plan, RETRIED_TASKS_PER_CALL)
  end
end
