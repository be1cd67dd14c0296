--[[ tell: append what a foreign executor tells of a session.
KEYS   base
ARGV   now_ms session run op event keep_ms
REPLY  ok ENTRY
VERBS
FLAGS
`op` names the call: the last one, sent again, changes nothing. `run` is the run that the session is in, if any. ]]

local about, told = key_about(session), key_told(session)
local last, entry = string.match(call('HGET', about, 'op') or '', '^(%S+) (%S+)$')
if last == op then return 'ok ' .. entry end
entry = call('XADD', told, 'MAXLEN', '~', TOLD_KEPT, '*', 'run', run, 'event', event)
call('HSET', about, 'op', op .. ' ' .. entry)
call('PEXPIRE', about, keep_ms)
call('PEXPIRE', told, keep_ms)
append('told', '', '', {}, session .. ' ' .. entry)
return 'ok ' .. entry
