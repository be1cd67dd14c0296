--[[ dialect/put_blueprints: write or remove blueprints and related records.
KEYS   base
ARGV   now_ms wipe expected
ROWS   name value
REPLY  ok, stale, too_many_blueprints MOST
VERBS
FLAGS
An empty value takes one away. With `wipe`, all that is there goes first. The field `revision` changes with every call;
where `expected` is given and it is another, nothing is done. Runners are told when scripts have changed. ]]

local key, entry_count, names, has_scripts = key_blueprints(), 0, {}, wipe ~= ''
if expected ~= '' and expected ~= (call('HGET', key, 'revision') or '0') then return 'stale' end
if wipe == '' then entry_count = call('HLEN', key) end
for name, value in next_row do
  names[#names + 1] = { name, value }
  has_scripts = has_scripts or string.sub(name, 1, 8) == 'scripts/'
  if value ~= '' and (wipe ~= '' or call('HEXISTS', key, name) == 0) then entry_count = entry_count + 1 end
end
if entry_count > BLUEPRINTS_KEPT then return 'too_many_blueprints ' .. BLUEPRINTS_KEPT end
local revision = tonumber(call('HGET', key, 'revision') or 0)
if wipe ~= '' then call('UNLINK', key) end
for _, row in ipairs(names) do
  if row[2] == '' then call('HDEL', key, row[1]) else call('HSET', key, row[1], row[2]) end
end
call('HSET', key, 'revision', string.format('%.0f', math.max(now, revision + 1)))
if has_scripts then append_event('scripts_changed', '', '', {}, '') end
return 'ok'
