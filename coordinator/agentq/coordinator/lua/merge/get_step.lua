--[[ merge/get_step: return the recorded merge progress of a run to the attempt that holds it.
KEYS   base
ARGV   now_ms id fence
REPLY  [ok, merge_progress or ''], not_found, fenced, wrong_state STATE
VERBS
FLAGS  no-writes
USES   conversation ]]

local run, word = load_for_attempt(id, fence)
if not run then return word end
return { 'ok', call('HGET', run.key, 'merge_progress') or '' }
