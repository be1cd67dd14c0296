--[[ duty/notify_dependents: notify more dependents of ended runs, and cancel more children, where one script had too many.
KEYS   base
ARGV   now_ms
REPLY  number of ended runs with dependents or children left
VERBS  unblock skip cancel wake
FLAGS  allow-oom
USES   plans limits waits session_turns end_run merge_queue ]]

for _, id in ipairs(call('ZRANGE', key_dependents_to_notify(), 0, DEPENDENTS_PER_CALL - 1)) do
  unnotified_runs[#unnotified_runs + 1] = { id = id, state = call('HGET', key_run(id), 'state') or 'missing' }
end
notify_dependents(DEPENDENTS_PER_CALL)
-- The caller need not be woken for the rest: the reply has the number.
earliest_timer = nil
return call('ZCARD', key_dependents_to_notify())
