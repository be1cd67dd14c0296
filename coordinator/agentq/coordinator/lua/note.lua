--[[ note: keep what foreign runners and clients say of a runner or a session, for a while.
KEYS   base
ARGV   now_ms kind id keep_ms
ROWS   name value
REPLY  ok
VERBS
FLAGS  allow-oom
`kind` is `runner` or `about`. An empty value takes the field away. No verb: it changes no state and tells no event. ]]

local key = kind == 'runner' and key_runner(id) or key_about(id)
for name, value in next_row do
  if value == '' then call('HDEL', key, name) else call('HSET', key, name, value) end
end
call('PEXPIRE', key, keep_ms)
return 'ok'
