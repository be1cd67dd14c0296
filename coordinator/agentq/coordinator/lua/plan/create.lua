--[[ plan/create: create a plan, before its tasks; or reopen one for more tasks.
KEYS   base
ARGV   now_ms plan name on_failed expected source budget secret
REPLY  [ok, created_at_ms], name_taken STATE, not_found, closed_plan NAME
VERBS
FLAGS
USES   plans
A plan is open until it is sealed, and does not end before. `expected` is the number of tasks to come; `source` is
opaque here. `budget` is in micro-dollars, or empty: once its tasks have cost that much, no more of them begin. A
repeated call with equal arguments is `ok`; with others, while the id is taken, `name_taken`. `secret` is kept from the
first call: the ids of the tasks follow from it, so that they cannot be guessed in advance. Without a name, an existing
plan is opened for more tasks. ]]

local key = key_plan(plan)
local f = call('HMGET', key, 'created_at_ms', 'name', 'on_failed', 'expected', 'source', 'stop_state', 'end_state', 'budget')
if name == '' then
  if not f[1] then return 'not_found' end
  if f[6] then return 'closed_plan ' .. plan end
  call('HSET', key, 'sealed', 0)
  return { 'ok', f[1] }
end
if f[1] then
  local same = f[2] == name and f[3] == on_failed and f[4] == expected and f[5] == source
    and (f[8] or '') == budget
  if same then return { 'ok', f[1] } end
  local state = f[7] or 'running'
  return 'name_taken ' .. state
end
call('HSET', key, 'name', name, 'on_failed', on_failed, 'expected', expected, 'source', source, 'sealed', 0,
  'created_at_ms', stamp, 'secret', secret)
if made_by ~= '' then call('HSET', key, 'made_by', made_by) end
if budget ~= '' then call('HSET', key, 'budget', budget) end
call('ZADD', key_plans(), stamp, plan)
-- If nothing ever comes of it, it is forgotten.
set_timer(plan_timer(plan), now + KEEP_MS)
return { 'ok', stamp }
