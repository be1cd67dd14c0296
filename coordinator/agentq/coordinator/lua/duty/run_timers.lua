--[[ duty/run_timers: fire due timers of runs: promote, expire, end unconfirmed stops, delete.
KEYS   base
ARGV   now_ms
REPLY  [runs done, when the next is due or 0]
VERBS  promote requeue expire unblock skip cancel wake
FLAGS  allow-oom
USES   plans limits waits session_turns end_run merge_queue requeue_run delete_run
A timer that cannot be rung, because of what was done to its run's key by hand, is put off, and the others ring. ]]

local function run_timer(id)
  local key = string.match(id, '^limit (.*)')
  if key then return run_limit_timer(key) end
  local session = string.match(id, '^session (.*)')
  if session then return run_session_timer(session) end
  local plan = string.match(id, '^plan (.*)')
  if plan then return run_plan_timer(plan) end
  local run = load(id)
  if not run then
    timers[id] = false
  elseif is_ended(run) and run.plan and is_plan_live(run.plan) then
    timers[id] = now + PLAN_RECHECK_MS
  elseif is_ended(run) then
    if not delete_run(id, run) then timers[id] = now + OPEN_SUBMIT_MS end
  elseif run.stop_at_ms then
    end_run_because(id, run, 'expire', 'cancelled', 'cancelled', 'the worker did not confirm the stop in time', true)
  elseif run.expires_at_ms and run.expires_at_ms <= now then
    end_run_because(id, run, 'expire', 'failed', 'timeout', 'not started in time')
  elseif (run.state == 'scheduled' or run.state == 'waiting') and run.due_at_ms and run.due_at_ms <= now then
    transition(id, run, 'promote', 'pending', '', 'entry', enqueue(id, run), 'reason', '', 'due_at_ms', '')
  else
    timers[id] = next_timer(run) or false
  end
end

local due = call('ZRANGE', key_timers(), '-inf', now, 'BYSCORE', 'LIMIT', 0, TICK_PER_CALL)
for _, id in ipairs(due) do
  if not pcall(run_timer, id) then timers[id] = now + OPEN_SUBMIT_MS end
end
flush_writes()
local first = call('ZRANGE', key_timers(), 0, 0, 'WITHSCORES')
return { #due, first[2] or '0' }
