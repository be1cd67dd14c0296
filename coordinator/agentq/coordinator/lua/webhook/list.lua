--[[ webhook/list: list webhooks: those named, or all, oldest first.
KEYS   base
ARGV   now_ms
ROWS   name
REPLY  [webhook, fields as JSON, messages to be delivered again, ...]
VERBS
FLAGS  no-writes ]]

local names = {}
for name in next_row do names[#names + 1] = name end
if #names == 0 then names = call('ZRANGE', key_webhooks(), 0, -1) end

local found = {}
for _, name in ipairs(names) do
  local flat, fields = call('HGETALL', key_webhook(name)), {}
  for at = 1, #flat, 2 do fields[flat[at]] = flat[at + 1] end
  if #flat > 0 then
    fields.secret, fields.previous_secret = nil, nil
    for _, value in ipairs({ name, json(fields), call('LLEN', key_redeliveries(name)) }) do found[#found + 1] = value end
  end
end
return found
