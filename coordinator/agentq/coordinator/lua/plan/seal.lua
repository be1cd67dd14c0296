--[[ plan/seal: seal a plan: all tasks have been submitted, so it ends when the last of them ends.
KEYS   base
ARGV   now_ms plan
REPLY  ok, not_found, no_tasks
VERBS
FLAGS  allow-oom
USES   plans limits waits session_turns end_run merge_queue
One without tasks stays open, and is forgotten if none ever comes. ]]

if call('EXISTS', key_plan(plan)) == 0 then return 'not_found' end
if call('EXISTS', key_plan_tasks(plan)) == 0 then return 'no_tasks' end
call('HSET', key_plan(plan), 'sealed', 1)
plans_to_check[plan] = true
return 'ok'
