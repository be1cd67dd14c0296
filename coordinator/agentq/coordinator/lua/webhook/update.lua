--[[ webhook/update: change a webhook: pause or resume it, or replace its secret.
KEYS   base
ARGV   now_ms name state why secret overlap_ms operation
REPLY  ok, not_found
VERBS
FLAGS  allow-oom
Empty arguments change nothing. The secret before also signs, for `overlap_ms`. `operation` names the call: a repeated
call changes nothing. ]]

local key = key_webhook(name)
local f = call('HMGET', key, 'state', 'operation', 'secret')
if not f[1] then return 'not_found' end
if f[2] == operation then return 'ok' end
call('HSET', key, 'operation', operation)
if state ~= '' then
  call('HSET', key, 'state', state, 'why', why)
  call('HDEL', key, 'failures', 'failing_since_ms', 'retry_at_ms')
end
if secret ~= '' then
  call('HSET', key, 'secret', secret, 'previous_secret', f[3], 'previous_secret_until_ms', string.format('%.0f', now + overlap_ms))
end
return 'ok'
