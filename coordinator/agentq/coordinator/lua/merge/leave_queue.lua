--[[ merge/leave_queue: leave the merge queue of a branch; the next attempt is notified.
KEYS   base
ARGV   now_ms id fence line
REPLY  ok, not_found, fenced, wrong_state STATE
VERBS
FLAGS  allow-oom
USES   conversation merge_queue
An attempt that stands in no such line is `ok`: it was sent before, or its turn has never come. ]]

local run, word = load_for_attempt(id, fence)
if not run then return word end
if run.merge_queue == line then leave_merge_queue(id, run) end
return 'ok'
