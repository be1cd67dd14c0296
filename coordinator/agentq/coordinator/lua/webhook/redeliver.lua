--[[ webhook/redeliver: queue a message for delivery to a webhook, again or out of turn.
KEYS   base
ARGV   now_ms name message operation
REPLY  ok, not_found, wrong_state STATE, too_many_redeliveries NUMBER
VERBS
FLAGS
`message` is its id, type and body as JSON. `operation` names the call: sent again it changes nothing. ]]

local key = key_webhook(name)
local f = call('HMGET', key, 'state', 'operation')
if not f[1] then return 'not_found' end
if f[2] == operation then return 'ok' end
if f[1] ~= 'active' then return 'wrong_state ' .. f[1] end
local number = call('LLEN', key_redeliveries(name))
if number >= REDELIVERIES then return 'too_many_redeliveries ' .. number end
call('HSET', key, 'operation', operation)
call('RPUSH', key_redeliveries(name), message)
return 'ok'
