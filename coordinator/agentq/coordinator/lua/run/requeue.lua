--[[ run/requeue: requeue an ended run, with fresh budgets and its history.
KEYS   base
ARGV   now_ms id operation
REPLY  ok STATE, not_found, duplicate ID, notifying_dependents, plan_stopping NAME, wrong_state STATE, no_session NAME, closed_session NAME, wrong_agent NAME
VERBS  requeue
FLAGS
USES   plans limits waits session_turns end_run merge_queue requeue_run
`operation` names the call: a repeated call changes nothing. Its waits and saved state are deleted, and so is the
conversation of an agent, unless it belongs to a session. A turn goes to the end of its session's queue.
`notifying_dependents` means that dependents are still being notified of the run's end; try later. `duplicate ID` means
that another run has taken its dedupe key meanwhile. A task of a plan waits for its dependencies that have not ended,
and the tasks skipped because of it are requeued too, a bounded number in this call; the plan's timer continues with the
rest. `plan_stopping` means that the plan is being stopped. ]]

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
