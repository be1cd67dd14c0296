--[[ run/delete: delete ended runs before their retention is over.
KEYS   base
ARGV   now_ms
ROWS   id state
REPLY  per run: ok, not_found, notifying_dependents, ended_recently, plan_not_ended NAME, wrong_state STATE
VERBS
FLAGS  allow-oom
USES   plans limits waits session_turns end_run merge_queue delete_run
A run is deleted only if it is in the state that its caller saw. `ended_recently` means that it ended less than
KEEP_MS_MIN ago, when a repeated submit must still find it; `notifying_dependents`, that dependents are still being
notified of its end; `plan_not_ended`, that it is a task of a plan that has not ended. ]]

local function delete_if_allowed(id, state)
  local run = load(id)
  if not run then return 'not_found' end
  if run.state ~= state or not is_ended(run) then return 'wrong_state ' .. run.state end
  if call('HGET', run.key, 'finished_at_ms') + KEEP_MS_MIN > now then return 'ended_recently' end
  if run.plan and is_plan_live(run.plan) then return 'plan_not_ended ' .. run.plan end
  return delete_run(id, run) and 'ok' or 'notifying_dependents'
end

local words = {}
for id, state in next_row do words[#words + 1] = delete_if_allowed(id, state) end
return words
