--[[ attempt/release: release a run whose processes have ended; it spends no attempt.
KEYS   base
ARGV   now_ms id fence reason
REPLY  ok STATE, not_found, fenced, wrong_state STATE
VERBS  release unblock skip cancel wake
FLAGS  allow-oom
USES   plans limits waits session_turns end_run merge_queue ]]

local run, word = load_held(id, fence, 'release')
if word == 'ok' then return 'ok ' .. call('HGET', key_run(id), 'state') end
if not run then return word end
return 'ok ' .. release_run(id, run, reason, 'release ' .. fence)
