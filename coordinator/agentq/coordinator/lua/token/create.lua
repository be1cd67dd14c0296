--[[ token/create: create a token of the server.
KEYS   base
ARGV   now_ms token name kind digest scopes queues units per_ms burst expires_at_ms
REPLY  ok, name_taken WHAT
VERBS
FLAGS
`digest` is the SHA-256 of the token's secret, which is nowhere kept. `queues`, `units` and what follows may be empty:
all queues, the server's own rate, no end. What has expired is forgotten here. Sent again it is `ok`. ]]

local key = key_token(token)
local known = call('HGET', key, 'digest')
if known then return known == digest and 'ok' or 'name_taken another' end
for _, each in ipairs(call('ZRANGE', key_tokens(), 0, -1)) do
  if call('EXISTS', key_token(each)) == 0 then call('ZREM', key_tokens(), each) end
end
call('ZADD', key_tokens(), stamp, token)
call('HSET', key, 'name', name, 'kind', kind, 'digest', digest, 'scopes', scopes, 'queues', queues, 'units', units,
  'per_ms', per_ms, 'burst', burst, 'created_at_ms', stamp, 'expires_at_ms', expires_at_ms)
if made_by ~= '' then call('HSET', key, 'made_by', made_by) end
if expires_at_ms ~= '' then call('PEXPIREAT', key, string.format('%.0f', expires_at_ms + TOKEN_KEPT_MS)) end
return 'ok'
