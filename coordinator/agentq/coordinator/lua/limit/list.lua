--[[ limit/list: list limits with their fields, holders and waiters.
KEYS   base
ARGV   now_ms
ROWS   limit
REPLY  [limit, fields as JSON, holders, waiters, ...]
VERBS
FLAGS  no-writes
Without rows it tells of all. ]]

local reply, names = {}, {}
for limit in next_row do names[#names + 1] = limit end
if #names == 0 then names = call('SMEMBERS', key_limits()) end
for _, limit in ipairs(names) do
  local fields, flat = {}, call('HGETALL', key_limit(limit))
  for at = 1, #flat, 2 do fields[flat[at]] = flat[at + 1] end
  local values = { limit, next(fields) and json(fields) or '{}', call('ZCARD', key_limit_holders(limit)),
    call('ZCARD', key_limit_waiters(limit)) }
  for _, value in ipairs(values) do reply[#reply + 1] = value end
end
return reply
