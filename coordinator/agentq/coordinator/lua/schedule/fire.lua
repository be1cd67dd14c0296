--[[ schedule/fire: fire a due schedule: create the run of a tick, record missed ticks, set the next tick.
KEYS   base
ARGV   now_ms name revision expected_ms tick_ms id next_ms wake_ms
REPLY  ok WHAT, not_found, stale
VERBS  submit unblock skip cancel wake
FLAGS
USES   plans limits waits session_turns end_run merge_queue create_run schedules
The caller has computed, from this revision and `expected_ms` as the next tick: that `tick_ms` is to run as `id` (or
none, if empty), that the ticks before it were missed, and that `next_ms` is the next tick (or none), due at `wake_ms`.
If the schedule has advanced, or was changed, or is not due, the reply is `stale` and nothing changes: so a tick is run
once, however many processes call. `ok damaged` means that its record cannot be read. ]]

local REFUSALS = { id_taken = 'a run of its id was there before', intake_closed = 'its queue takes no new runs',
  too_many_queues = 'there are as many queues as there may be',
  too_many_for_token = 'the token that made it has made as many queues as it may',
  no_session = 'its session does not exist', closed_session = 'its session is closed',
  wrong_agent = 'its session is of another agent', exceeds_burst = 'it asks for more units of a limit than its burst' }

local found = load_schedule(name)
if not found then
  call('ZREM', key_schedules(), name)
  return 'not_found'
end
if tonumber(call('ZSCORE', key_schedules(), name) or '0') > now then return 'stale' end
if found.ended_at_ms then
  delete_schedule(name)
  return 'ok forgotten'
end
if found.paused_at_ms then
  set_schedule_due(found, '+inf')
  return 'stale'
end
if not is_complete(found) then return 'ok damaged' end
if found.revision ~= revision or found.next_at_ms ~= expected_ms then return 'stale' end
if tick_ms ~= '' and tonumber(tick_ms) <= tonumber(found.last_at_ms or 0) then return 'ok damaged' end

local what = 'missed'
if tick_ms ~= expected_ms then
  local before = tick_ms ~= '' and tick_ms or next_ms
  append_history(found, what, { tick_ms = tonumber(expected_ms), before_ms = tonumber(before) })
end
if tick_ms ~= '' then
  local waits_for, other, why = apply_overlap(found, id)
  local answer = waits_for and create_scheduled_run(found, id, waits_for)
  what = answer == 'ok' and 'made' or 'skipped'
  if answer and answer ~= 'ok' then
    local word, which = string.match(answer, '^(%S+) ?(.*)$')
    other = not REFUSALS[word] and non_empty(which) or id
    why = REFUSALS[word] or 'a live run has its dedupe key'
  end
  append_history(found, what, { tick_ms = tonumber(tick_ms), run = other or id, why = why })
  call('HSET', found.key, 'last_at_ms', tick_ms)
end
if found.fault then call('HDEL', found.key, 'fault', 'fault_at_ms') end
advance_schedule(found, next_ms, wake_ms)
return 'ok ' .. what
