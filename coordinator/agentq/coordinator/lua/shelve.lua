--[[ shelve: keep blueprints and what belongs to them, or take them away.
KEYS   base
ARGV   now_ms wipe expected
ROWS   name value
REPLY  ok, stale, overfull MOST
VERBS
FLAGS
An empty value takes one away. With `wipe`, all that is there goes first. The field `revision` changes with every call;
where `expected` is given and it is another, nothing is done. Runners are told when scripts have changed. ]]

local key, new, names, scripts = key_shelf(), 0, {}, wipe ~= ''
if expected ~= '' and expected ~= (call('HGET', key, 'revision') or '0') then return 'stale' end
if wipe == '' then new = call('HLEN', key) end
for name, value in next_row do
  names[#names + 1] = { name, value }
  scripts = scripts or string.sub(name, 1, 8) == 'scripts/'
  if value ~= '' and (wipe ~= '' or call('HEXISTS', key, name) == 0) then new = new + 1 end
end
if new > SHELF_KEPT then return 'overfull ' .. SHELF_KEPT end
local revision = tonumber(call('HGET', key, 'revision') or 0)
if wipe ~= '' then call('UNLINK', key) end
for _, row in ipairs(names) do
  if row[2] == '' then call('HDEL', key, row[1]) else call('HSET', key, row[1], row[2]) end
end
call('HSET', key, 'revision', string.format('%.0f', math.max(now, revision + 1)))
if scripts then append('scripts_changed', '', '', {}, '') end
return 'ok'
