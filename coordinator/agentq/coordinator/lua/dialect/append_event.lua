--[[ dialect/append_event: append an event of a foreign executor to a session.
KEYS   base
ARGV   now_ms session run operation event keep_ms
REPLY  ok ENTRY
VERBS
FLAGS
`operation` names the call: the last one, sent again, changes nothing. `run` is the run that the session is in, if any.
Each event says how many bytes were told before it, `from_byte`; the oldest go that are more than is kept. ]]

local fields_key, stream_key = key_dialect_fields(session), key_dialect_events(session)
local f = call('HMGET', fields_key, 'operation', 'event_bytes', 'first_event_byte')
local last, entry = string.match(f[1] or '', '^(%S+) (%S+)$')
if last == operation then return 'ok ' .. entry end
local at, from = tonumber(f[2] or 0), tonumber(f[3] or 0)
entry = call('XADD', stream_key, 'MAXLEN', '~', DIALECT_EVENTS_KEPT, '*', 'run', run, 'event', event, 'from_byte', string.format('%.0f', at))
local before = at + #event - DIALECT_EVENTS_BYTES
while from < before do
  local oldest = call('XRANGE', stream_key, '-', '+', 'COUNT', 1)[1]
  from = tonumber(oldest[2][6] or 0)
  if from < before then call('XDEL', stream_key, oldest[1]) end
end
call('HSET', fields_key, 'operation', operation .. ' ' .. entry, 'event_bytes', string.format('%.0f', at + #event), 'first_event_byte',
  string.format('%.0f', from))
call('PEXPIRE', fields_key, keep_ms)
call('PEXPIRE', stream_key, keep_ms)
append_event('dialect_event', '', '', {}, session .. ' ' .. entry)
return 'ok ' .. entry
