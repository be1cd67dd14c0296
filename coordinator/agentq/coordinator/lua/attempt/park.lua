--[[ attempt/park: park a held run: it gives its slot back and waits for a time, for signals, for its children, or for a wake.
KEYS   base
ARGV   now_ms id fence alarm_at_ms alarm_ms reason signals children saved_state
REPLY  ok STATE, not_found, fenced, wrong_state STATE
VERBS  park unblock skip cancel wake
FLAGS  allow-oom
USES   plans limits waits session_turns end_run merge_queue
The alarm is at a time, or `alarm_ms` from now; the other one is empty. `signals` are names with a space on either side,
`children` is all, any or empty, `saved_state` is data that the run gets back when it continues. The signals and
children delivered to this attempt are deleted. If its wait is over already, the run is pending again at once. ]]

local run, word = load_held(id, fence, 'park')
if word == 'ok' then return 'ok ' .. call('HGET', key_run(id), 'state') end
if not run then return word end
local alarm = tonumber(alarm_at_ms)
if alarm_ms ~= '' then alarm = now + alarm_ms end
if run.stop_at_ms then
  end_stopped_run(id, run, 'park')
  return 'ok cancelled'
end
delete_received(id, run)
local is_woken = call('HEXISTS', run.key, 'wake_requested') == 1 or (alarm and alarm <= now)
  or have_children_ended(id, children) or #awaited_signals(id, signals) > 0
run.due_at_ms = not is_woken and alarm or nil
local state = is_woken and 'pending' or 'waiting'
end_attempt(id, run, 'park', state, is_woken and '' or reason, nil, 'park ' .. fence, 'has_signals_or_children', 1, 'parked_at_ms', stamp,
  'awaited_signals', signals, 'awaited_children', children, 'alarm_at_ms', alarm and string.format('%.0f', alarm) or '',
  'saved_state', saved_state)
return 'ok ' .. state
