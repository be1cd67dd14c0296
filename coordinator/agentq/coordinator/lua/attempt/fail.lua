--[[ attempt/fail: report that an attempt failed; its class selects the retry budget that pays for another try.
KEYS   base
ARGV   now_ms id fence class outcome random delay_ms
REPLY  ok STATE, not_found, fenced, wrong_state STATE
VERBS  fail unblock skip cancel wake
FLAGS  allow-oom
USES   plans limits waits session_turns end_run merge_queue
`delay_ms` is a wait that the failure itself asked for, or empty. `ok` sent again tells the present state. ]]

local run, word = load_held(id, fence, 'fail')
if run then
  count_ended(run)
  word = fail_attempt(id, run, fence, class, outcome, random, delay_ms)
end
if word == 'ok' then return 'ok ' .. call('HGET', key_run(id), 'state') end
return word
