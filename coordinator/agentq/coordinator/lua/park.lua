--[[ park: a running run gives its slot back and waits to be woken, or for its alarm.
KEYS   base
ARGV   now_ms id fence alarm_at_ms reason
REPLY  ok STATE, not_found, fenced, wrong_state STATE
VERBS  park unblock skip
FLAGS  allow-oom
USES   limiting ending
What wanted it awake while it was on its way to sleep counts: it is pending again at once. ]]

local run, word = load_held(id, fence, 'park')
if word == 'ok' then return 'ok ' .. call('HGET', key_run(id), 'state') end
if not run then return word end
local alarm = tonumber(alarm_at_ms)
if run.stop_at_ms then
  conclude_stopped(id, run, 'park')
  return 'ok cancelled'
end
local wanted = call('HEXISTS', run.key, 'wanted') == 1 or (alarm and alarm <= now)
run.due_at_ms = not wanted and alarm or nil
local state = wanted and 'pending' or 'waiting'
leave(id, run, 'park', state, wanted and '' or reason, nil, 'park ' .. fence)
return 'ok ' .. state
