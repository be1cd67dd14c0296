--[[ queue/purge: cancel unclaimed runs of a queue, oldest first, a bounded number per call.
KEYS   base
ARGV   now_ms queue state why
REPLY  [runs cancelled, 1 if there may be more]
VERBS  cancel unblock skip wake
FLAGS  allow-oom
USES   plans limits waits session_turns end_run merge_queue ]]

local ids = call('ZRANGE', key_index(queue, state), 0, SWEEP_PER_CALL - 1)
local cancelled = 0
for _, id in ipairs(ids) do
  local run = load(id)
  if run and run.state == state and is_verb_allowed('cancel', state) and not is_held(run) then
    end_run_because(id, run, 'cancel', 'cancelled', 'cancelled', why)
    cancelled = cancelled + 1
  end
end
return { cancelled, cancelled > 0 and #ids == SWEEP_PER_CALL and 1 or 0 }
