--[[ session/set_alias: add another id for a session.
KEYS   base
ARGV   now_ms alias session keep_ms
REPLY  ok, name_taken SESSION
VERBS
FLAGS
An empty session takes the alias away. ]]

local key = key_session_alias(alias)
if session == '' then
  call('UNLINK', key)
  return 'ok'
end
local other = call('GET', key)
if other and other ~= session then return 'name_taken ' .. other end
call('SET', key, session, 'PX', keep_ms)
return 'ok'
