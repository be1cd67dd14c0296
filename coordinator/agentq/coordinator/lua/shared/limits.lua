--[[ Limits: their capacity, its holders, the runs that wait for it, and the admission of those.

A run takes capacity under each of its keys when it is claimed, all or none, and releases it when it leaves its worker.
If a key has none, the run is blocked and waits in the queue of the first such key. The script that frees capacity
admits the first waiter: it becomes pending, with its capacity reserved, in the front lane of its lane. Used capacity is
the size of the set of holders. A rate refills and a shut limit opens with time: the key then has a timer, `limit KEY`.
]]

-- Keys that may have free capacity now.
local freed_limits = {}
local implied_limits = nil

-- The limits of a run, as key, units, key, units: its own keys, and those of its queue and of all runs, where
-- such limits are set.
local function limits_of(run)
  implied_limits = implied_limits or call('HGET', key_cursors(), 'implied_limits') or ''
  if not run.limits and implied_limits == '' then return nil end
  local needs = {}
  for key, units in string.gmatch(run.limits or '', '(%S+) (%d+)') do
    needs[#needs + 1], needs[#needs + 2] = key, tonumber(units)
  end
  for _, key in ipairs({ 'queue:' .. queue_of(run.lane), 'global' }) do
    if string.find(implied_limits, ' ' .. key .. ' ', 1, true) then needs[#needs + 1], needs[#needs + 2] = key, 1 end
  end
  return #needs > 0 and needs or nil
end

-- The tokens in a key's bucket now.
local function tokens_in_bucket(units, per_ms, burst, tokens, filled_at)
  return math.min(burst, math.max(0, tokens or burst) + math.max(0, now - (filled_at or now)) * units / per_ms)
end

-- The refusal of a run that asks for more units of a rate than its bucket ever holds.
local function refuse_units(limits)
  for key, units in string.gmatch(limits or '', '(%S+) (%d+)') do
    local burst = call('HGET', key_limit(key), 'burst')
    if burst and tonumber(units) > tonumber(burst) then
      return 'exceeds_burst ' .. key .. ', which has a burst of ' .. burst
    end
  end
end

-- Why a key has no capacity for so many units, and when it will have if only time brings it; nil if it has.
local function check_limit(key, wanted)
  local f = call('HMGET', key_limit(key), 'shut_until_ms', 'max', 'units', 'per_ms', 'burst', 'tokens', 'filled_at_ms')
  local shut_until = tonumber(f[1] or nil)
  if shut_until and shut_until > now then return 'shut', shut_until end
  if f[2] and call('ZCARD', key_limit_holders(key)) >= tonumber(f[2]) then return 'full' end
  local units, per_ms, burst = tonumber(f[3] or nil), tonumber(f[4] or nil), tonumber(f[5] or nil)
  if not units then return nil end
  -- The server's clock was set back: the refill counts from now on.
  if f[7] and tonumber(f[7]) > now then
    call('HSET', key_limit(key), 'filled_at_ms', stamp)
    f[7] = stamp
  end
  -- A run from before the bucket was made smaller takes all that it holds.
  local missing = math.min(wanted, burst) - tokens_in_bucket(units, per_ms, burst, tonumber(f[6] or nil), tonumber(f[7] or nil))
  if missing > 0.000001 then return 'rate', now + math.ceil(missing * per_ms / units) end
end

-- The first key without capacity for a run, and when it will have some. A run that has not waited stays behind the
-- waiters.
local function first_full_limit(needs, has_waited)
  for at = 1, #needs, 2 do
    local key = needs[at]
    local why, when = check_limit(key, needs[at + 1])
    if not why and not has_waited and call('EXISTS', key_limit_waiters(key)) == 1 then
      freed_limits[#freed_limits + 1], why = key, 'line'
    end
    if why then return key, when end
  end
end

local function acquire_limits(id, needs)
  for at = 1, #needs, 2 do
    local key, wanted = needs[at], needs[at + 1]
    call('ZADD', key_limit_holders(key), stamp, id)
    local f = call('HMGET', key_limit(key), 'units', 'per_ms', 'burst', 'tokens', 'filled_at_ms')
    local units, per_ms, burst = tonumber(f[1] or nil), tonumber(f[2] or nil), tonumber(f[3] or nil)
    if units then
      local left = tokens_in_bucket(units, per_ms, burst, tonumber(f[4] or nil), tonumber(f[5] or nil)) - math.min(wanted, burst)
      call('HSET', key_limit(key), 'tokens', string.format('%.17g', left), 'filled_at_ms', stamp)
    end
  end
end

-- The limits that an admitted run holds no capacity of: those set since that apply by themselves.
local function missing_limits(id, needs)
  local more = {}
  for at = 1, #needs, 2 do
    if not call('ZSCORE', key_limit_holders(needs[at]), id) then
      more[#more + 1], more[#more + 2] = needs[at], needs[at + 1]
    end
  end
  return #more > 0 and more or nil
end

local function release_limits(id, run)
  local needs = limits_of(run)
  for at = 1, needs and #needs or 0, 2 do
    if call('ZREM', key_limit_holders(needs[at]), id) == 1 then freed_limits[#freed_limits + 1] = needs[at] end
  end
  if run.reserved then
    call('HDEL', run.key, 'reserved')
    run.reserved = nil
  end
end

-- The key that a blocked run waits for.
local function awaited_limit(run) return run.reason and string.match(run.reason, '^limit (.*)') end

-- Waiters are ordered by priority, then by arrival; a run that comes from another key's waiters keeps its `place`.
local function join_waiters(id, run, key, place)
  if not place then
    local priority = string.match(run.lane, '^[^:]*:(%d)')
    place = string.format('%.0f', (9 - priority) * 2 ^ 48 + call('HINCRBY', key_cursors(), 'waiter_number', 1))
  end
  call('ZADD', key_limit_waiters(key), place, id)
end

-- Remove a blocked run that ends from the waiters of its limit, and drop its dependencies.
local function leave_waiters(id, run)
  call('UNLINK', key_dependencies(id))
  local key = awaited_limit(run)
  if key then call('ZREM', key_limit_waiters(key), id) end
end

-- Make place for the newest run: end the oldest waiter, or else the oldest holder.
local function evict_for_limit(key, most, why)
  local waiter = call('ZCARD', key_limit_waiters(key)) >= most and call('ZRANGE', key_limit_waiters(key), 0, 0)[1]
  if waiter then return end_run_because(waiter, load(waiter), 'cancel', 'cancelled', 'cancelled', why) end
  for _, id in ipairs(call('ZRANGE', key_limit_holders(key), 0, ADMITTED_PER_CALL - 1)) do
    local run = load(id)
    if run and not is_held(run) then return end_run_because(id, run, 'cancel', 'cancelled', 'cancelled', why) end
    if run and not run.stop_at_ms then return order_stop(id, run, why, STOP_DEADLINE_MS) end
  end
end

-- Apply the `when_full` policy of a limit for a run that finds no capacity; returns why the run must not wait, or nil.
local function apply_when_full(id, key)
  local f = call('HMGET', key_limit(key), 'when_full', 'max')
  local why = 'a later run, ' .. id .. ', took its place under the limit ' .. key
  if f[1] == 'cancel_newest' then return 'the limit ' .. key .. ' had no room for it' end
  if f[1] == 'cancel_running' then evict_for_limit(key, tonumber(f[2] or 1), why) end
  if f[1] == 'keep_latest' then
    for _, other in ipairs(call('ZRANGE', key_limit_waiters(key), 0, ADMITTED_PER_CALL - 1)) do
      if other ~= id then end_run_because(other, load(other), 'cancel', 'cancelled', 'cancelled', why) end
    end
  end
end

-- Block a pending run that finds no capacity when it is claimed.
local function block_on_limit(id, run, key, when)
  release_limits(id, run)
  local unwanted = apply_when_full(id, key)
  if unwanted then return end_run_because(id, run, 'cancel', 'cancelled', 'cancelled', unwanted) end
  run.lane, run.entry, run.reason = normal_lane(run.lane), '', 'limit ' .. key
  transition(id, run, 'block', 'blocked', run.reason, 'entry', '', 'lane', run.lane, 'reason', run.reason, 'extended', 1)
  join_waiters(id, run, key)
  if when then set_timer(run.reason, when) end
end

-- Admit the first waiter of a key, or move it to the waiters of another key that it now has to wait for.
local function admit_waiter(id, key)
  local place, run = call('ZSCORE', key_limit_waiters(key), id), load(id)
  call('ZREM', key_limit_waiters(key), id)
  if not run or run.state ~= 'blocked' or awaited_limit(run) ~= key then return end
  local needs = limits_of(run) or {}
  local other, when = first_full_limit(needs, true)
  if other then
    run.reason = 'limit ' .. other
    call('HSET', run.key, 'reason', run.reason)
    join_waiters(id, run, other, place)
    if when then set_timer(run.reason, when) end
    return
  end
  acquire_limits(id, needs)
  run.lane = front_lane(run.lane)
  transition(id, run, 'unblock', 'pending', '', 'entry', enqueue(id, run), 'lane', run.lane, 'reason', '', 'reserved', 1)
end

-- The units of a key that a run needs.
local function units_wanted(id, key)
  local limits = call('HGET', key_run(id), 'limits')
  for own, units in string.gmatch(limits or '', '(%S+) (%d+)') do
    if own == key then return tonumber(units) end
  end
  return 1
end

local function is_implied_limit(key) return key == 'global' or string.match(key, '^queue:') end

-- After a limit was set or deleted: update the set of limits, and the list of implied limits that every claim reads.
local function update_limit_set(key)
  if call('EXISTS', key_limit(key)) == 1 then
    call('SADD', key_limits(), key)
  else
    call('SREM', key_limits(), key)
    if is_implied_limit(key) then call('DEL', key_limit_holders(key)) end
  end
  if not is_implied_limit(key) then return end
  local names = {}
  for _, name in ipairs(call('SMEMBERS', key_limits())) do
    if is_implied_limit(name) then names[#names + 1] = name end
  end
  table.sort(names)
  implied_limits = #names > 0 and ' ' .. table.concat(names, ' ') .. ' ' or ''
  call('HSET', key_cursors(), 'implied_limits', implied_limits)
end

-- Shut a limit until a time: it admits no run; a time that has passed opens it.
local function block_limit_until(key, until_ms, why)
  local open_at = math.min(tonumber(until_ms), DUE_AT_MS_MAX)
  if open_at > now then
    call('HSET', key_limit(key), 'shut_until_ms', string.format('%.0f', open_at), 'shut_why', why)
    set_timer('limit ' .. key, open_at)
  else
    call('HDEL', key_limit(key), 'shut_until_ms', 'shut_why')
    freed_limits[#freed_limits + 1] = key
  end
  update_limit_set(key)
end

-- The timer of a key is due: the limit opens, or its bucket holds enough.
local function run_limit_timer(key)
  local shut_until = tonumber(call('HGET', key_limit(key), 'shut_until_ms') or nil)
  if shut_until and shut_until <= now then block_limit_until(key, 0) end
  timers['limit ' .. key] = false
  freed_limits[#freed_limits + 1] = key
end

-- Admit the waiters that have capacity, a bounded number in one call; the timer of the key continues with the rest.
local function admit_waiters(budget)
  while #freed_limits > 0 do
    local key = table.remove(freed_limits)
    while true do
      local id = call('ZRANGE', key_limit_waiters(key), 0, 0)[1]
      if not id then
        -- A shut limit opens, and its timer goes, also if no run waits.
        timers['limit ' .. key] = tonumber(call('HGET', key_limit(key), 'shut_until_ms') or nil) or false
        break
      end
      local why, when = check_limit(key, units_wanted(id, key))
      if when then set_timer('limit ' .. key, when) end
      if not why and budget <= 0 then set_timer_now('limit ' .. key) end
      if why or budget <= 0 then break end
      budget = budget - 1
      admit_waiter(id, key)
    end
  end
end
