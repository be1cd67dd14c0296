--[[ webhook/create: create a webhook, which gets the events after these positions.
KEYS   base
ARGV   now_ms name url filter secret positions operation
REPLY  ok, name_taken STATE, too_many_webhooks NUMBER
VERBS
FLAGS
`filter` is JSON. `positions` has the position in the events of each partition. `operation` names the call: a repeated
call changes nothing. ]]

local key = key_webhook(name)
local f = call('HMGET', key, 'creation', 'state')
if f[1] == operation then return 'ok' end
if f[2] then return 'name_taken ' .. f[2] end
local number = call('ZCARD', key_webhooks())
if number >= WEBHOOKS then return 'too_many_webhooks ' .. number end

call('HSET', key, 'url', url, 'filter', filter, 'secret', secret, 'positions', positions, 'state', 'active', 'creation', operation,
  'created_at_ms', stamp)
if made_by ~= '' then call('HSET', key, 'made_by', made_by) end
call('ZADD', key_webhooks(), stamp, name)
return 'ok'
