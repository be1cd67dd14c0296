--[[ plan/cancel: cancel a plan: no more tasks start, live ones are stopped, a bounded number per call.
KEYS   base
ARGV   now_ms plan why
REPLY  ok LEFT, not_found, wrong_state STATE
VERBS  cancel unblock skip wake
FLAGS  allow-oom
USES   plans limits waits session_turns end_run merge_queue
While some are left to be told, LEFT is 1; the plan's timer goes on with them, whether or not this is called again.
Tasks that are held end when their workers confirm. ]]

local f = call('HMGET', key_plan(plan), 'created_at_ms', 'stop_state', 'end_state')
if not f[1] then return 'not_found' end
if f[3] then return f[2] and 'ok 0' or 'wrong_state ' .. f[3] end
if not f[2] then stop_plan(plan, 'cancelled', why) end
if call('HGET', key_plan(plan), 'stop_cursor') == 'spared' then call('HDEL', key_plan(plan), 'stop_cursor') end
plans_to_stop[plan] = nil
plans_to_check[plan] = true
return stop_plan_tasks(plan, DEPENDENTS_PER_CALL) and 'ok 0' or 'ok 1'
