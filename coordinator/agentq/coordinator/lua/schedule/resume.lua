--[[ schedule/resume: resume a paused schedule, from the tick that was computed for it.
KEYS   base
ARGV   now_ms name revision expected_ms next_ms wake_ms
REPLY  ok, not_found, stale
VERBS  submit unblock skip cancel wake
FLAGS  allow-oom
USES   plans limits waits session_turns end_run merge_queue create_run schedules
`next_ms` is the tick where it stopped, `expected_ms`, if it is to catch up; or the first to come, and then those in
between were missed. It is empty if there is none any more. ]]

local found = load_schedule(name)
if not found then return 'not_found' end
if not found.paused_at_ms then return 'ok' end
if found.revision ~= revision or found.next_at_ms ~= expected_ms then return 'stale' end
if next_ms ~= expected_ms then
  append_history(found, 'missed', { tick_ms = tonumber(expected_ms), before_ms = tonumber(next_ms), why = 'it was paused' })
end
call('HDEL', found.key, 'paused_at_ms', 'paused_why')
advance_schedule(found, next_ms, wake_ms)
return 'ok'
