--[[ session/delete: delete a session without live turns before its retention is over; its runs stay.
KEYS   base
ARGV   now_ms name
REPLY  ok, not_found, wrong_state STATE
VERBS
FLAGS  allow-oom ]]

if call('EXISTS', key_session_turns(name)) == 1 then return 'wrong_state busy' end
if call('EXISTS', key_session(name), key_dialect_fields(name)) == 0 then return 'not_found' end
append_event('session_deleted', '', '', {}, name)
call('UNLINK', key_dialect_fields(name), key_dialect_events(name))
call('UNLINK', key_session(name), key_session_transcript(name))
call('ZREM', key_sessions(), name)
timers['session ' .. name] = false
return 'ok'
