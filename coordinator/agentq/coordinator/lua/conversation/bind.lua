--[[ conversation/bind: record the conversation of an attempt of an agent on its run, and on its session.
KEYS   base
ARGV   now_ms id fence agent_session host account model movable
REPLY  ok, not_found, fenced, wrong_state STATE
VERBS
FLAGS  allow-oom
USES   conversation
`agent_session` is the agent's own id; empty, there is none to go on with, and the next attempt begins a new one. Unless
it is `movable`, later attempts, and turns, go to this host. No verb: it changes no state and tells no event. ]]

local run, word = load_for_attempt(id, fence)
if not run then return word end
local key, transcript = conversation_keys(id, run)

local function set_field(field, value, ...)
  if value == '' then
    for _, each in ipairs({ ... }) do call('HDEL', each, field) end
  else
    for _, each in ipairs({ ... }) do call('HSET', each, field, value) end
  end
end

set_field('agent_session', agent_session, key, run.key)
set_field('host', agent_session ~= '' and host or '', key, run.key)
set_field('account', account, key, run.key)
set_field('model', model, run.key)
set_field('pinned_host', agent_session ~= '' and movable == '' and host or '', key)
call('HDEL', key, 'fork')
if agent_session == '' then call('HDEL', key, 'totals') end
if agent_session == '' or movable == '' then
  call('HDEL', key, 'transcript_of')
  call('UNLINK', transcript)
end
call('HSET', run.key, 'extended', 1)
return 'ok'
