--[[ fail: an attempt did not do its work; its class decides what it is paid from and whether it is tried again.
KEYS   base
ARGV   now_ms id fence class outcome dice delay_ms
REPLY  ok STATE, not_found, fenced, wrong_state STATE
VERBS  fail unblock skip cancel wake
FLAGS  allow-oom
USES   limiting waiting ending
`delay_ms` is a wait that the failure itself asked for, or empty. `ok` sent again tells the present state. ]]

local run, word = load_held(id, fence, 'fail')
if word == 'ok' then return 'ok ' .. call('HGET', key_run(id), 'state') end
if not run then return word end
if run.stop_at_ms or class == 'cancelled' then
  conclude(id, run, 'fail', 'cancelled', class, outcome)
  return 'ok cancelled'
end
local policy, budget = retry_policy(run), BUDGETS[class]
local spent = budget and tonumber(call('HGET', run.key, budget) or 0)
if not budget or policy.final[class] or spent >= policy[budget] then
  conclude(id, run, 'fail', 'failed', class, outcome)
  return 'ok failed'
end
run.due_at_ms = now + (tonumber(delay_ms) or backoff_ms(policy, spent, dice))
leave(id, run, 'fail', 'scheduled', 'retry after ' .. class, outcome, 'fail ' .. fence, budget, spent + 1)
return 'ok scheduled'
