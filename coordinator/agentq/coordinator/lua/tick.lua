--[[ tick: do what time imposes on runs: promote, expire, end unconfirmed stops, forget.
KEYS   base
ARGV   now_ms
REPLY  [runs done, when the next is due or 0]
VERBS  promote expire unblock skip cancel wake
FLAGS  allow-oom
USES   limiting waiting ending
A timer that cannot be rung, because of what was done to its run's key by hand, is put off, and the others ring. ]]

-- Delete what is left of an ended run whose time is up; not while its dependents are still being told.
local function forget(id, run)
  if call('ZSCORE', key_settling(), id) then
    timers[id] = now + OPEN_MS
    return
  end
  local f = call('HMGET', key_run(id), 'plan', 'session')
  if f[1] then call('ZREM', key_plan(f[1]), id) end
  if f[2] then call('ZREM', key_session(f[2]), id) end
  reindex(id, run.lane, run.state, nil)
  timers[id] = false
  call('UNLINK', key_run(id), key_needs(id), key_dependents(id), key_log(id), key_signals(id))
end

local function ring(id)
  local key = string.match(id, '^limit (.*)')
  if key then return ring_limit(key) end
  local run = load(id)
  if not run then
    timers[id] = false
  elseif is_ended(run) then
    forget(id, run)
  elseif run.stop_at_ms then
    end_with(id, run, 'expire', 'cancelled', 'cancelled', 'the worker did not confirm the stop in time', true)
  elseif run.until_ms and run.until_ms <= now then
    end_with(id, run, 'expire', 'failed', 'timeout', 'not started in time')
  elseif (run.state == 'scheduled' or run.state == 'waiting') and run.due_at_ms and run.due_at_ms <= now then
    move(id, run, 'promote', 'pending', '', 'entry', enqueue(id, run), 'reason', '', 'due_at_ms', '')
  else
    timers[id] = next_timer(run) or false
  end
end

local due = call('ZRANGE', key_timers(), '-inf', now, 'BYSCORE', 'LIMIT', 0, TICK_A_CALL)
for _, id in ipairs(due) do
  if not pcall(ring, id) then timers[id] = now + OPEN_MS end
end
close()
local first = call('ZRANGE', key_timers(), 0, 0, 'WITHSCORES')
return { #due, first[2] or '0' }
