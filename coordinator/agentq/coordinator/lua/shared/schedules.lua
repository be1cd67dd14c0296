--[[ Schedules: their next due time, their history, and the creation of their runs. ]]

local SCHEDULE_FIELDS = { 'revision', 'next_at_ms', 'last_at_ms', 'paused_at_ms', 'ended_at_ms', 'overlap', 'lane', 'spec', 'options',
  'fault', 'made_by' }

-- Read the fields of a schedule that scripts need; nil if it does not exist.
local function load_schedule(name)
  local key = key_schedule(name)
  local values, schedule = call('HMGET', key, unpack(SCHEDULE_FIELDS)), { name = name, key = key }
  if not values[1] then return nil end
  for at, field in ipairs(SCHEDULE_FIELDS) do schedule[field] = non_empty(values[at]) end
  return schedule
end

-- Whether a schedule has all the fields that a tick needs.
local function is_complete(schedule)
  return schedule.next_at_ms and schedule.overlap and schedule.lane and schedule.spec and schedule.options
    and pcall(cjson.decode, schedule.options)
end

-- Set the next due time of a schedule, and wake the scheduler if it is earlier than expected.
local function set_schedule_due(schedule, at)
  if at ~= '+inf' then notify_duty_owner(key_schedules(), tonumber(at)) end
  call('ZADD', key_schedules(), at, schedule.name)
end

-- Update a schedule for its next tick, or end it if there is none.
local function advance_schedule(schedule, next_ms, wake_ms)
  call('HSET', schedule.key, 'next_at_ms', next_ms)
  if next_ms ~= '' then return set_schedule_due(schedule, wake_ms) end
  call('HSET', schedule.key, 'ended_at_ms', stamp)
  set_schedule_due(schedule, forget_at)
end

-- Delete a schedule. Its runs continue, and leave the set of its runs as they end.
local function delete_schedule(name)
  call('ZREM', key_schedules(), name)
  call('UNLINK', key_schedule(name), key_schedule_history(name))
end

local function append_history(schedule, what, facts)
  facts.what, facts.at_ms = what, now
  call('LPUSH', key_schedule_history(schedule.name), json(facts))
  call('LTRIM', key_schedule_history(schedule.name), 0, HISTORY_KEPT - 1)
end

-- The runs of a schedule that have not ended. Others, left only by damage, are removed.
local function live_schedule_runs(schedule)
  local live = {}
  for _, id in ipairs(call('ZRANGE', key_schedule_runs(schedule.name), 0, OVERLAP_PER_CALL - 1)) do
    local run = load(id)
    if run and not is_ended(run) then
      live[#live + 1] = { id = id, run = run }
    else
      call('ZREM', key_schedule_runs(schedule.name), id)
    end
  end
  return live
end

-- Cancel the earlier runs; returns those that have to be stopped by their workers first.
local function cancel_earlier_runs(live, id)
  local stopping, why = {}, 'its schedule has made a later run, ' .. id
  for _, each in ipairs(live) do
    if not is_held(each.run) then
      end_run_because(each.id, each.run, 'cancel', 'cancelled', 'cancelled', why)
    else
      stopping[#stopping + 1] = each.id
      if not each.run.stop_at_ms then order_stop(each.id, each.run, why, STOP_DEADLINE_MS) end
    end
  end
  return stopping
end

-- The runs that a new one must wait for under the overlap policy; or the run and the reason why none is created.
local function apply_overlap(schedule, id)
  if schedule.overlap == 'allow' then return {} end
  local live = live_schedule_runs(schedule)
  if schedule.overlap == 'cancel_old' then return cancel_earlier_runs(live, id) end
  local waited_for = {}
  for _, each in ipairs(live) do waited_for[#waited_for + 1] = each.id end
  if #live >= (schedule.overlap == 'queue' and OVERLAP_PER_CALL or 1) then
    return nil, live[#live].id, #live == 1 and 'the run before it has not ended' or #live .. ' runs before it have not ended'
  end
  return waited_for
end

-- Create a run of a schedule; returns a reply of submit.
local function create_scheduled_run(schedule, id, waits_for)
  local options = cjson.decode(schedule.options)
  options.schedule = schedule.name
  if made_by == '' then made_by = schedule.made_by or '' end
  if #waits_for > 0 then options.after, options.on_failed = waits_for, 'run' end
  return create_run(id, schedule.lane, schedule.spec, options)
end
