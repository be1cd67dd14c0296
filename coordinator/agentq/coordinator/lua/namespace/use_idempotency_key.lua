--[[ namespace/use_idempotency_key: return the stored answer of an idempotency key, or store it the first time.
KEYS   base
ARGV   now_ms digest body answer ttl_ms
REPLY  [body, answer]
VERBS
FLAGS
`digest` is of the key, `body` of what was asked with it. Of the first that asked, body and answer are told to all.
Without `ttl_ms` the answer takes the place of the one that is there, and stays no longer than that would have. ]]

local key = key_idempotency_key(digest)
local found = call('GET', key)
if found and ttl_ms ~= '' then
  local first, rest = string.match(found, '^(%S*) (.*)$')
  return { first, rest }
end
if ttl_ms ~= '' then
  call('SET', key, body .. ' ' .. answer, 'PX', ttl_ms)
elseif found then
  call('SET', key, body .. ' ' .. answer, 'KEEPTTL')
end
return { body, answer }
