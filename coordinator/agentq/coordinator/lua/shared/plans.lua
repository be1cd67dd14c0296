--[[ Plans: how tasks that end bear on their plan. A plan has ended when no more of it is to come and none of its tasks
lives; its word is made from the sizes of its indexes. One that is stopped takes no more tasks and lets none be claimed,
so what lives of it only becomes less, however many calls it takes to cancel that. ]]

-- Plans of which a task has ended in this call, and those that have been stopped and not yet told.
local plans_to_check, plans_to_stop = {}, {}

local function plan_timer(plan) return 'plan ' .. plan end

-- Let the plan's timer go on with what one call cannot finish.
local function continue_plan_later(plan) set_timer_now(plan_timer(plan)) end

-- Nothing is under way in a plan; one that has no task yet is forgotten if none ever comes.
local function clear_plan_timer(plan)
  timers[plan_timer(plan)] = call('EXISTS', key_plan_tasks(plan)) == 0 and now + KEEP_MS or false
end

-- Why a run cannot be a task of its plan, or nil.
local function refuse_task(id, options)
  local f = call('HMGET', key_plan(options.plan), 'created_at_ms', 'stop_state')
  if not f[1] then return 'no_plan ' .. options.plan end
  if f[2] then return 'closed_plan ' .. options.plan end
  local other = call('HGET', key_plan_tasks(options.plan), options.task)
  if other and other ~= id then return 'duplicate ' .. other end
end

-- A plan that has ended goes on: a task has come, or begins again.
local function reopen_plan(plan)
  if call('EXISTS', key_plan(plan)) == 0 then return end
  call('HDEL', key_plan(plan), 'end_state', 'ended_at_ms', 'stop_state', 'stop_reason', 'stopped_at_ms', 'stop_cursor')
  plans_to_check[plan] = true
end

local function add_task(id, run, options)
  call('HSET', run.key, 'task', options.task)
  if options.after then call('HSET', run.key, 'all_dependencies', table.concat(options.after, ' ')) end
  call('HSET', key_plan_tasks(options.plan), options.task, id)
  reopen_plan(options.plan)
end

-- Let nothing more of a plan begin; `how` is the word that it ends with.
local function stop_plan(plan, how, why)
  call('HSET', key_plan(plan), 'stop_state', how, 'stop_reason', why, 'stopped_at_ms', stamp)
  call('HDEL', key_plan(plan), 'retry_scope', 'retry_cursor', 'retry_found')
  plans_to_stop[plan] = true
  plans_to_check[plan] = true
  continue_plan_later(plan)
end

-- A task has ended.
local function apply_task_end(id, run)
  plans_to_check[run.plan] = true
  if run.state ~= 'failed' then return end
  local f = call('HMGET', key_plan(run.plan), 'on_failed', 'stop_state')
  if f[1] == 'fail-plan' and not f[2] then stop_plan(run.plan, 'failed', 'its task ' .. run.task .. ' failed') end
end

-- Why a plan is stopped, or false.
local function stop_reason(plan) return call('HMGET', key_plan(plan), 'stop_reason')[1] end

-- Why a task must not be claimed, or false. A plan that has spent its budget is stopped here: waiting tasks are
-- cancelled, and held tasks continue, for their work is paid.
local function refuse_task_start(plan)
  local f = call('HMGET', key_plan(plan), 'stop_reason', 'budget', 'spent')
  local budget, spent = tonumber(f[2] or nil), tonumber(f[3] or 0)
  if f[1] or not budget or spent < budget then return f[1] end
  local why = string.format('it has cost $%.2f, of $%.2f that it may cost', spent / 1e6, budget / 1e6)
  stop_plan(plan, 'cancelled', why)
  call('HSET', key_plan(plan), 'stop_cursor', 'spared')
  return why
end

-- Cancel the tasks of a stopped plan that no worker holds, the last first, so that none is skipped for a cancelled one.
local function cancel_queued_tasks(plan, why, budget)
  for _, state in ipairs({ 'blocked', 'scheduled', 'pending', 'waiting' }) do
    local ids = budget > 0 and call('ZRANGE', key_plan_index(plan, state), 0, budget - 1, 'REV') or {}
    for _, id in ipairs(ids) do
      local run = load(id)
      if run and run.state == state then end_run_because(id, run, 'cancel', 'cancelled', 'cancelled', why) end
    end
    budget = budget - #ids
  end
  return budget
end

-- Order the workers of the held tasks to stop them; continues where the last call ended.
local function stop_held_tasks(plan, why, budget)
  local at_state, after = string.match(call('HGET', key_plan(plan), 'stop_cursor') or '', '^(%S+) (%S*)$')
  for _, state in ipairs({ 'claimed', 'running' }) do
    if not at_state or at_state == state then
      local from = non_empty(after or '') and '(' .. after or '-'
      local ids = call('ZRANGE', key_plan_index(plan, state), from, '+', 'BYLEX', 'LIMIT', 0, budget)
      for _, id in ipairs(ids) do
        local run = load(id)
        if run and is_held(run) and not run.stop_at_ms then order_stop(id, run, why, STOP_DEADLINE_MS) end
      end
      if #ids == budget then
        call('HSET', key_plan(plan), 'stop_cursor', state .. ' ' .. (ids[budget] or after or ''))
        return false
      end
      budget, at_state, after = budget - #ids, nil, nil
    end
  end
  call('HSET', key_plan(plan), 'stop_cursor', 'done')
  return true
end

-- Stop some live tasks of a plan, by its indexes after all other changes of this call; the plan's timer continues with
-- the rest.
local function stop_plan_tasks(plan, budget)
  flush_indexes()
  local f = call('HMGET', key_plan(plan), 'stop_reason', 'stop_cursor')
  local left = cancel_queued_tasks(plan, f[1], budget)
  local done = left > 0 and (f[2] == 'done' or f[2] == 'spared' or stop_held_tasks(plan, f[1], left))
  if done then clear_plan_timer(plan) else continue_plan_later(plan) end
  return done
end

local function stop_tasks_of_plans()
  for plan in pairs(plans_to_stop) do stop_plan_tasks(plan, DEPENDENTS_PER_CALL) end
  plans_to_stop = {}
end

local function has_live_tasks(plan)
  return call('EXISTS', key_plan_index(plan, 'blocked'), key_plan_index(plan, 'scheduled'),
    key_plan_index(plan, 'pending'), key_plan_index(plan, 'claimed'), key_plan_index(plan, 'running'),
    key_plan_index(plan, 'waiting')) > 0
end

-- The number of tasks of a plan in each state that has any.
local function task_counts(plan)
  local words = {}
  for _, state in ipairs({ 'blocked', 'scheduled', 'pending', 'claimed', 'running', 'waiting', 'completed', 'failed',
    'cancelled', 'skipped' }) do
    local count = call('ZCARD', key_plan_index(plan, state))
    if count > 0 then words[#words + 1] = state .. '=' .. count end
  end
  return table.concat(words, ' ')
end

-- End a plan if all its tasks have ended, by its indexes, which must be up to date.
local function end_plan_if_done(plan)
  local f = call('HMGET', key_plan(plan), 'sealed', 'end_state', 'retry_scope', 'stop_state')
  local all_there = f[1] == '1' or f[4]
  if not all_there or f[2] or f[3] or has_live_tasks(plan) then return end
  local lacking = call('EXISTS', key_plan_index(plan, 'failed'), key_plan_index(plan, 'cancelled'),
    key_plan_index(plan, 'skipped')) > 0
  local done = not lacking and call('EXISTS', key_plan_index(plan, 'completed')) == 1
  local word = done and 'completed' or f[4] or 'failed'
  call('HSET', key_plan(plan), 'end_state', word, 'ended_at_ms', stamp)
  flush_events()
  call('XADD', key_events(), 'MAXLEN', '~', tostring(EVENTS_KEPT), '*', 'event', 'plan_ended', 'run', '', 'state', word,
    'attempt', '0', 'worker', '', 'detail', task_counts(plan), 'plan', plan)
end

local function end_plans_if_done()
  flush_indexes()
  for plan in pairs(plans_to_check) do end_plan_if_done(plan) end
  plans_to_check = {}
end

-- Whether the ended runs of a plan are kept longer: later tasks may depend on them.
local function is_plan_live(plan)
  local f = call('HMGET', key_plan(plan), 'created_at_ms', 'end_state')
  return f[1] and not f[2]
end

-- Delete a task, and with the last one its plan.
local function delete_task(run)
  call('HDEL', key_plan_tasks(run.plan), run.task)
  if call('EXISTS', key_plan_tasks(run.plan)) == 0 then
    call('UNLINK', key_plan(run.plan))
    call('ZREM', key_plans(), run.plan)
    timers[plan_timer(run.plan)] = false
  end
end
