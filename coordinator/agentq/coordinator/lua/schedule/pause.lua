--[[ schedule/pause: pause a schedule; the runs that it created continue.
KEYS   base
ARGV   now_ms name why
REPLY  ok, not_found, wrong_state STATE
VERBS  submit unblock skip cancel wake
FLAGS  allow-oom
USES   plans limits waits session_turns end_run merge_queue create_run schedules ]]

local found = load_schedule(name)
if not found then return 'not_found' end
if found.ended_at_ms then return 'wrong_state ended' end
if not found.paused_at_ms then
  call('HSET', found.key, 'paused_at_ms', stamp, 'paused_why', why)
  set_schedule_due(found, '+inf')
end
return 'ok'
