--[[ carry: the transcript of a conversation, for attempts on other hosts to go on with.
KEYS   base
ARGV   now_ms id fence transcript
REPLY  ok, not_found, fenced, wrong_state STATE, unbound
VERBS
FLAGS
USES   conversing
It takes the place of the one before. From then on attempts need not go to the host that has the conversation. No verb: it
changes no state and tells no event. ]]

local run, word = load_own(id, fence)
if not run then return word end
local key, place = conversation_of(id, run)
local of = present(call('HGET', key, 'agent_session'))
if not of then return 'unbound' end
call('SET', place, transcript)
call('HSET', key, 'carried_of', of)
call('HDEL', key, 'stays')
return 'ok'
