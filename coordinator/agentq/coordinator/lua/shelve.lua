--[[ shelve: keep blueprints and what belongs to them, or take them away.
KEYS   base
ARGV   now_ms wipe
ROWS   name value
REPLY  ok, overfull MOST
VERBS
FLAGS
An empty value takes one away. With `wipe`, all that is there goes first. The field `revision` changes with every call. ]]

local key, new, names = key_shelf(), 0, {}
if wipe == '' then new = call('HLEN', key) end
for name, value in next_row do
  names[#names + 1] = { name, value }
  if value ~= '' and (wipe ~= '' or call('HEXISTS', key, name) == 0) then new = new + 1 end
end
if new > SHELF_KEPT then return 'overfull ' .. SHELF_KEPT end
local revision = tonumber(call('HGET', key, 'revision') or 0)
if wipe ~= '' then call('UNLINK', key) end
for _, row in ipairs(names) do
  if row[2] == '' then call('HDEL', key, row[1]) else call('HSET', key, row[1], row[2]) end
end
call('HSET', key, 'revision', string.format('%.0f', math.max(now, revision + 1)))
return 'ok'
