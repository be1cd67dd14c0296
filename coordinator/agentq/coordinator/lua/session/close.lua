--[[ session/close: close a session to new turns; queued turns continue, or are cancelled.
KEYS   base
ARGV   now_ms name cancel
REPLY  ok LEFT, not_found
VERBS  cancel unblock skip wake
FLAGS  allow-oom
USES   plans limits waits session_turns end_run merge_queue
With `cancel` its turns are cancelled, the last first, a bounded number in one call; LEFT is the number left to cancel.
]]

local key = key_session(name)
local state = call('HGET', key, 'state')
if not state then return 'not_found' end
if state == 'open' then
  call('HSET', key, 'state', 'closed', 'closed_at_ms', stamp)
  sessions_to_advance[name] = true
end
if cancel == '' then return 'ok 0' end

local why, stopping_count = 'its session ' .. name .. ' was closed', 0
for _, id in ipairs(call('ZREVRANGE', key_session_turns(name), 0, SWEEP_PER_CALL - 1)) do
  local run = load(id)
  if run and is_held(run) then
    stopping_count = stopping_count + 1
    if not run.stop_at_ms then order_stop(id, run, why, STOP_DEADLINE_MS) end
  elseif run and not is_ended(run) then
    end_run_because(id, run, 'cancel', 'cancelled', 'cancelled', why)
  else
    call('ZREM', key_session_turns(name), id)
  end
end
return 'ok ' .. call('ZCARD', key_session_turns(name)) - stopping_count
