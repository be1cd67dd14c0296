--[[ suspend: pause a schedule; the runs that it made go on.
KEYS   base
ARGV   now_ms name why
REPLY  ok, not_found, wrong_state STATE
VERBS  submit unblock skip cancel wake
FLAGS  allow-oom
USES   planning limiting waiting turns ending merging birth scheduling ]]

local found = load_schedule(name)
if not found then return 'not_found' end
if found.ended_at_ms then return 'wrong_state ended' end
if not found.paused_at_ms then
  call('HSET', found.key, 'paused_at_ms', stamp, 'paused_why', why)
  keep_place(found, '+inf')
end
return 'ok'
