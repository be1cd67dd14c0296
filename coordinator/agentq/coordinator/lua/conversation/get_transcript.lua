--[[ conversation/get_transcript: return the transcript of the conversation that an attempt continues.
KEYS   base
ARGV   now_ms id fence
REPLY  [ok, transcript or ''], not_found, fenced, wrong_state STATE
VERBS
FLAGS  no-writes
USES   conversation ]]

local run, word = load_for_attempt(id, fence)
if not run then return word end
local key, place = conversation_keys(id, run)
local f = call('HMGET', key, 'agent_session', 'transcript_of')
return { 'ok', f[1] and f[1] == f[2] and call('GET', place) or '' }
