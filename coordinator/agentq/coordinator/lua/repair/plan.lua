--[[ repair/plan: compare some indexes of a plan with its runs, and repair differences.
KEYS   base
ARGV   now_ms plan
REPLY  number of entries repaired
VERBS
FLAGS  allow-oom
USES   plans limits waits session_turns end_run merge_queue
The scripts keep them together; this is for damage to Redis itself. The tasks to check are drawn at random, so that all
are checked in time, however large the plan is. ]]

local repaired = 0
for _, state in ipairs({ 'blocked', 'scheduled', 'pending', 'claimed', 'running', 'waiting', 'completed', 'failed',
  'cancelled', 'skipped' }) do
  for _, id in ipairs(call('ZRANDMEMBER', key_plan_index(plan, state), INSPECT_PER_CALL / 10)) do
    local run = load(id)
    if not run or run.state ~= state then
      call('ZREM', key_plan_index(plan, state), id)
      if run and run.plan == plan then call('ZADD', key_plan_index(plan, run.state), 0, id) end
      repaired = repaired + 1
    end
  end
end
local sampled_tasks = call('HRANDFIELD', key_plan_tasks(plan), INSPECT_PER_CALL / 10, 'WITHVALUES')
for at = 1, #sampled_tasks, 2 do
  if call('EXISTS', key_run(sampled_tasks[at + 1])) == 0 then
    call('ZREM', key_plan_runs(plan), sampled_tasks[at + 1])
    delete_task({ plan = plan, task = sampled_tasks[at] })
    repaired = repaired + 1
  end
end
if call('HGET', key_plan(plan), 'stop_state') and has_live_tasks(plan) then continue_plan_later(plan) end
plans_to_check[plan] = true
return repaired
