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
local policy = retry_policy(run)
local purse, most = purse_of(policy, class)
local spent = purse and tonumber(call('HGET', run.key, purse) or 0)
if purse and spent < most then
  run.due_at_ms = now + (tonumber(delay_ms) or backoff_ms(policy, class, spent, dice))
  if not is_too_late(run, policy, run.due_at_ms) then
    leave(id, run, 'fail', 'scheduled', 'retry after ' .. class, outcome, 'fail ' .. fence, purse, spent + 1)
    return 'ok scheduled'
  end
end
conclude(id, run, 'fail', 'failed', class, outcome)
return 'ok failed'
