--[[ tell: append what a foreign executor tells of a session.
KEYS   base
ARGV   now_ms session run op event keep_ms
REPLY  ok ENTRY
VERBS
FLAGS
`op` names the call: the last one, sent again, changes nothing. `run` is the run that the session is in, if any. Each event
says how many bytes were told before it, `at`; the oldest go that are more than is kept. ]]

local about, told = key_about(session), key_told(session)
local f = call('HMGET', about, 'op', 'told_bytes', 'told_from')
local last, entry = string.match(f[1] or '', '^(%S+) (%S+)$')
if last == op then return 'ok ' .. entry end
local at, from = tonumber(f[2] or 0), tonumber(f[3] or 0)
entry = call('XADD', told, 'MAXLEN', '~', TOLD_KEPT, '*', 'run', run, 'event', event, 'at', string.format('%.0f', at))
local before = at + #event - TOLD_IN_ALL_BYTES
while from < before do
  local oldest = call('XRANGE', told, '-', '+', 'COUNT', 1)[1]
  from = tonumber(oldest[2][6] or 0)
  if from < before then call('XDEL', told, oldest[1]) end
end
call('HSET', about, 'op', op .. ' ' .. entry, 'told_bytes', string.format('%.0f', at + #event), 'told_from',
  string.format('%.0f', from))
call('PEXPIRE', about, keep_ms)
call('PEXPIRE', told, keep_ms)
append('told', '', '', {}, session .. ' ' .. entry)
return 'ok ' .. entry
