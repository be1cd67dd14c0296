--[[ seal: all tasks of a plan have been submitted; it ends when the last of them has.
KEYS   base
ARGV   now_ms plan
REPLY  ok, not_found
VERBS
FLAGS  allow-oom
USES   planning limiting waiting turns ending merging ]]

if call('EXISTS', key_plan(plan)) == 0 then return 'not_found' end
call('HSET', key_plan(plan), 'sealed', 1)
concerned[plan] = true
return 'ok'
