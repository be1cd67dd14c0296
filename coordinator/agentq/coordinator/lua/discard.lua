--[[ discard: delete a session that has no turns left, before its time; its runs stay.
KEYS   base
ARGV   now_ms name
REPLY  ok, not_found, wrong_state STATE
VERBS
FLAGS  allow-oom ]]

local gone = call('UNLINK', key_about(name), key_told(name))
if call('EXISTS', key_session(name)) == 0 then return gone > 0 and 'ok' or 'not_found' end
if call('EXISTS', key_turns(name)) == 1 then return 'wrong_state busy' end
call('UNLINK', key_session(name), key_session_carried(name))
call('ZREM', key_sessions(), name)
timers['session ' .. name] = false
return 'ok'
