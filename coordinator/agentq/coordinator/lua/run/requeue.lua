--[[ run/requeue: requeue an ended run, with fresh budgets and its history.
KEYS   base
ARGV   now_ms id operation
REPLY  ok STATE, not_found, duplicate ID, notifying_dependents, plan_stopping NAME, wrong_state STATE, no_session NAME, closed_session NAME, wrong_agent NAME
VERBS  requeue
FLAGS
USES   plans limits waits session_turns end_run merge_queue requeue_run
`operation` names the call: sent again it changes nothing. What it waited for and saved is forgotten, and the conversation of an agent,
unless that is its session's: it begins anew. A turn stands at the end of the line. `notifying_dependents` means that dependents are still being told how the run
ended; try later. `duplicate ID` means that another run has taken its dedupe key meanwhile. A task of a
plan waits for those of its dependencies that live, and with it begins again what was skipped for it, a bounded number in this
call; the plan's timer goes on with the rest. `plan_stopping` means that the plan is being stopped. ]]

local run = load(id)
if not run then return 'not_found' end
if run.operation == 'requeue ' .. operation then return 'ok ' .. run.state end
local refused = refuse_requeue(id, run)
if refused then return refused end
requeue_run(id, run, 'requeue ' .. operation)
if run.plan then
  start_plan_retry(run.plan, 'skipped')
  continue_plan_retry(run.plan, RETRIED_TASKS_PER_CALL)
end
return 'ok ' .. run.state
