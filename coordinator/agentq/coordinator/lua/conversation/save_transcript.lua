--[[ conversation/save_transcript: save the transcript of a conversation, so that attempts on other hosts can continue it.
KEYS   base
ARGV   now_ms id fence transcript
REPLY  ok, not_found, fenced, wrong_state STATE, no_conversation
VERBS
FLAGS
USES   conversation
It takes the place of the one before. From then on attempts need not go to the host that has the conversation. No verb:
it changes no state and tells no event. ]]

local run, word = load_for_attempt(id, fence)
if not run then return word end
local key, place = conversation_keys(id, run)
local own_session_id = non_empty(call('HGET', key, 'agent_session'))
if not own_session_id then return 'no_conversation' end
call('SET', place, transcript)
call('HSET', key, 'transcript_of', own_session_id)
call('HDEL', key, 'pinned_host')
return 'ok'
