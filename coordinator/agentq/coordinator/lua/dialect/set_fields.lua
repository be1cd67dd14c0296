--[[ dialect/set_fields: set fields of foreign runners or sessions, with a TTL.
KEYS   base
ARGV   now_ms kind keep_ms
ROWS   id name value
REPLY  ok
VERBS
FLAGS  allow-oom
`kind` is `runner` or `about`. An empty value takes the field away. No verb: it changes no state and tells no event. ]]

local noted = {}
for id, name, value in next_row do
  local key = kind == 'runner' and key_dialect_runner(id) or key_dialect_fields(id)
  if value == '' then call('HDEL', key, name) else call('HSET', key, name, value) end
  noted[key] = true
end
for key in pairs(noted) do call('PEXPIRE', key, keep_ms) end
return 'ok'
