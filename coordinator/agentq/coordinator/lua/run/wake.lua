--[[ run/wake: wake a run. Idempotent: on a run that is awake it sets at most a flag.
KEYS   base
ARGV   now_ms id
REPLY  ok STATE, not_found, wrong_state STATE
VERBS  wake
FLAGS  allow-oom
USES   plans limits waits session_turns end_run merge_queue
A run that is pending is about to be awake; one that is held notes the wish, so that it does not sleep on it. ]]

local run = load(id)
if not run then return 'not_found' end
if run.state == 'pending' then return 'ok pending' end
if not is_verb_allowed('wake', run.state) then return 'wrong_state ' .. run.state end
if is_held(run) then
  if call('HSETNX', run.key, 'wake_requested', 1) == 1 then transition(id, run, 'wake', run.state) end
  return 'ok ' .. run.state
end
wake_run(id, run, 'wake', '')
return 'ok pending'
