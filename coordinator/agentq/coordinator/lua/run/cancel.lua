--[[ run/cancel: cancel a run; a held one gets a stop order and ends when its worker confirms, or after `stop_ms`.
KEYS   base
ARGV   now_ms id reason stop_ms parent fence
REPLY  ok STATE, not_found, wrong_state STATE, not_its_child ID, parent_fenced ID
VERBS  cancel unblock skip wake
FLAGS  allow-oom
USES   plans limits waits session_turns end_run merge_queue
With `parent` and `fence`, an attempt ends a child of its run: it has to be one, and the attempt to hold its run.
A second cancel of a run that is stopping is `ok` and orders nothing twice: the first deadline stays. ]]

local run = load(id)
if not run then return 'not_found' end
if parent ~= '' then
  local holder = load(parent)
  if run.parent ~= parent then return 'not_its_child ' .. parent end
  if not (holder and is_held(holder) and holder.fence == fence) then return 'parent_fenced ' .. parent end
end
if run.state == 'cancelled' then return 'ok cancelled' end
if not is_verb_allowed('cancel', run.state) then return 'wrong_state ' .. run.state end
if not is_held(run) then
  end_run_because(id, run, 'cancel', 'cancelled', 'cancelled', reason)
  return 'ok cancelled'
end
if not run.stop_at_ms then order_stop(id, run, reason, stop_ms) end
return 'ok ' .. run.state
