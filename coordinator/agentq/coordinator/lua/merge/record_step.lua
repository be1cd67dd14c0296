--[[ merge/record_step: record the merge progress of an attempt, before it does what cannot be undone.
KEYS   base
ARGV   now_ms id fence merge_progress
REPLY  ok, not_found, fenced, wrong_state STATE
VERBS
FLAGS  allow-oom
USES   conversation
`merge_progress` is JSON, opaque here but for its step (see requeue). It stays for the attempts that follow. No verb: it
changes no state and tells no event. ]]

local run, word = load_for_attempt(id, fence)
if not run then return word end
call('HSET', run.key, 'merge_progress', merge_progress)
return 'ok'
