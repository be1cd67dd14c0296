--[[ attempt/defer: defer a run after a usage limit or an outage: it is scheduled for a time and spends no retry.
KEYS   base
ARGV   now_ms id fence due_at_ms delay_ms outcome account_limit random
REPLY  ok STATE, not_found, fenced, wrong_state STATE
VERBS  defer unblock skip cancel wake
FLAGS  allow-oom
USES   plans limits waits session_turns end_run merge_queue
The run continues at `due_at_ms`, or `delay_ms` from now, or, if both are empty, after the backoff of its policy. A run
deferred more often, or for longer, than its policy allows fails. `account_limit`, if given, is the limit that was met:
it admits no run before that time. ]]

local run, word = load_held(id, fence, 'defer')
if word == 'ok' then return 'ok ' .. call('HGET', key_run(id), 'state') end
if not run then return word end
if run.stop_at_ms then
  end_stopped_run(id, run, 'defer')
  return 'ok cancelled'
end
local policy = retry_policy(run)
local budget, most = retry_budget(policy, 'limit')
local spent = budget and tonumber(call('HGET', run.key, budget) or 0)
local due_at = tonumber(due_at_ms)
if delay_ms ~= '' then due_at = now + delay_ms end
due_at = due_at or now + backoff_ms(policy, 'limit', spent or 0, random)
if not budget or spent >= most or is_too_late(run, policy, due_at) then
  end_run(id, run, 'defer', 'failed', 'deferred too often', outcome)
  return 'ok failed'
end
if account_limit ~= '' then block_limit_until(account_limit, string.format('%.0f', due_at), 'run ' .. id .. ' met it') end
run.due_at_ms = due_at
local agent = outcome ~= '' and cjson.decode(outcome).agent
local why = agent and agent.verdict == 'throttled' and 'service refuses' or 'usage limit'
end_attempt(id, run, 'defer', 'scheduled', why, outcome, 'defer ' .. fence, budget, spent + 1)
return 'ok scheduled'
