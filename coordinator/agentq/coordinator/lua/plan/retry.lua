--[[ plan/retry: requeue ended tasks of a plan, and the tasks skipped because of them, a bounded number per call.
KEYS   base
ARGV   now_ms plan scope operation
REPLY  ok LEFT, not_found, plan_stopping NAME
VERBS  requeue unblock skip cancel wake
FLAGS
USES   plans limits waits session_turns end_run merge_queue requeue_run
`scope` is failed; or all, those that were cancelled among them; or skipped, only what was skipped for tasks that live
again or have completed since. `operation` names the call: with the same one it goes on. LEFT is 1 until it is done; the
plan's timer goes on with it, whether or not this is called again. Each task begins again once, however soon it fails.
]]

local key = key_plan(plan)
local f = call('HMGET', key, 'created_at_ms', 'stop_state', 'end_state', 'operation', 'retry_scope')
if not f[1] then return 'not_found' end
if f[2] and not f[3] then return 'plan_stopping ' .. plan end
-- What a task that began again has set going is gone on with.
if f[4] ~= operation and not (scope == 'skipped' and f[5]) then
  start_plan_retry(plan, scope)
  call('HSET', key, 'operation', operation)
end
return continue_plan_retry(plan, RETRIED_TASKS_PER_CALL) and 'ok 0' or 'ok 1'
