--[[ Limits: what runs need room under, who has some, who waits for it, and who is let in when it comes.

A run takes room under each of its keys when it is claimed, all or none, and leaves it with its worker. One that finds
none is blocked, in the line of the first key that has none; whoever makes room lets the first of the line in: it is
pending, with its room reserved, in the lane before its own. Room is counted by who has it. A key's rate and its gate
come back with time: the key then has a timer, named `limit KEY`. ]]

-- Keys under which room may have come.
local freed = {}
local implied = nil

-- What a run needs room under, as key, units, key, units: its own keys, and those of its queue and of everything, where
-- such limits are set.
local function needs_of(run)
  implied = implied or call('HGET', key_cursors(), 'implied') or ''
  if not run.limits and implied == '' then return nil end
  local needs = {}
  for key, units in string.gmatch(run.limits or '', '(%S+) (%d+)') do
    needs[#needs + 1], needs[#needs + 2] = key, tonumber(units)
  end
  for _, key in ipairs({ 'queue:' .. queue_of(run.lane), 'global' }) do
    if string.find(implied, ' ' .. key .. ' ', 1, true) then needs[#needs + 1], needs[#needs + 2] = key, 1 end
  end
  return #needs > 0 and needs or nil
end

-- What is in a key's bucket by now.
local function tokens_of(units, per_ms, burst, tokens, filled_at)
  return math.min(burst, math.max(0, tokens or burst) + math.max(0, now - (filled_at or now)) * units / per_ms)
end

-- The word that refuses a run which asks for more units of a rate than its bucket ever holds.
local function refuse_units(limits)
  for key, units in string.gmatch(limits or '', '(%S+) (%d+)') do
    local burst = call('HGET', key_limit(key), 'burst')
    if burst and tonumber(units) > tonumber(burst) then
      return 'over_burst ' .. key .. ', which has a burst of ' .. burst
    end
  end
end

-- Why there is no room for so many units under a key, and when there will be if only time brings it; nil if there is.
local function refuses(key, wanted)
  local f = call('HMGET', key_limit(key), 'shut_until_ms', 'max', 'units', 'per_ms', 'burst', 'tokens', 'filled_at_ms')
  local shut_until = tonumber(f[1] or nil)
  if shut_until and shut_until > now then return 'shut', shut_until end
  if f[2] and call('ZCARD', key_holders(key)) >= tonumber(f[2]) then return 'full' end
  local units, per_ms, burst = tonumber(f[3] or nil), tonumber(f[4] or nil), tonumber(f[5] or nil)
  if not units then return nil end
  -- The server's clock was set back: what comes back with time counts from now on.
  if f[7] and tonumber(f[7]) > now then
    call('HSET', key_limit(key), 'filled_at_ms', stamp)
    f[7] = stamp
  end
  -- A run from before the bucket was so small takes all that it holds.
  local missing = math.min(wanted, burst) - tokens_of(units, per_ms, burst, tonumber(f[6] or nil), tonumber(f[7] or nil))
  if missing > 0.000001 then return 'rate', now + math.ceil(missing * per_ms / units) end
end

-- The first key that has no room for a run, and when it will have. Who has not waited yet stays behind who has.
local function obstacle(needs, has_waited)
  for at = 1, #needs, 2 do
    local key = needs[at]
    local why, when = refuses(key, needs[at + 1])
    if not why and not has_waited and call('EXISTS', key_waiters(key)) == 1 then
      freed[#freed + 1], why = key, 'line'
    end
    if why then return key, when end
  end
end

local function seize(id, needs)
  for at = 1, #needs, 2 do
    local key, wanted = needs[at], needs[at + 1]
    call('ZADD', key_holders(key), stamp, id)
    local f = call('HMGET', key_limit(key), 'units', 'per_ms', 'burst', 'tokens', 'filled_at_ms')
    local units, per_ms, burst = tonumber(f[1] or nil), tonumber(f[2] or nil), tonumber(f[3] or nil)
    if units then
      local left = tokens_of(units, per_ms, burst, tonumber(f[4] or nil), tonumber(f[5] or nil)) - math.min(wanted, burst)
      call('HSET', key_limit(key), 'tokens', string.format('%.17g', left), 'filled_at_ms', stamp)
    end
  end
end

-- What a run that was let in needs besides the room it has: a limit that was set since, and applies by itself.
local function still_needed(id, needs)
  local more = {}
  for at = 1, #needs, 2 do
    if not call('ZSCORE', key_holders(needs[at]), id) then
      more[#more + 1], more[#more + 2] = needs[at], needs[at + 1]
    end
  end
  return #more > 0 and more or nil
end

local function unseize(id, run)
  local needs = needs_of(run)
  for at = 1, needs and #needs or 0, 2 do
    if call('ZREM', key_holders(needs[at]), id) == 1 then freed[#freed + 1] = needs[at] end
  end
  if run.reserved then
    call('HDEL', run.key, 'reserved')
    run.reserved = nil
  end
end

-- The key in whose line a blocked run stands.
local function line_of(run) return run.reason and string.match(run.reason, '^limit (.*)') end

-- In a line the more urgent come first, then who came first; whoever comes from another line keeps the `place` it had.
local function stand_in_line(id, run, key, place)
  if not place then
    local priority = string.match(run.lane, '^[^:]*:(%d)')
    place = string.format('%.0f', (9 - priority) * 2 ^ 48 + call('HINCRBY', key_cursors(), 'line', 1))
  end
  call('ZADD', key_waiters(key), place, id)
end

-- A blocked run that ends leaves the line that it stands in, and waits for nobody.
local function leave_line(id, run)
  call('UNLINK', key_needs(id))
  local key = line_of(run)
  if key then call('ZREM', key_waiters(key), id) end
end

-- The newest run is wanted: the oldest that waits goes, or else the oldest that has room.
local function displace(key, most, why)
  local waiter = call('ZCARD', key_waiters(key)) >= most and call('ZRANGE', key_waiters(key), 0, 0)[1]
  if waiter then return end_with(waiter, load(waiter), 'cancel', 'cancelled', 'cancelled', why) end
  for _, id in ipairs(call('ZRANGE', key_holders(key), 0, LET_IN_A_CALL - 1)) do
    local run = load(id)
    if run and not is_held(run) then return end_with(id, run, 'cancel', 'cancelled', 'cancelled', why) end
    if run and not run.stop_at_ms then return order_stop(id, run, why, STOP_MS) end
  end
end

-- A run finds no room under a key. What becomes of it, and of others, is for the limit to say; returns why it is not to
-- wait, or nil.
local function make_way(id, key)
  local f = call('HMGET', key_limit(key), 'when_full', 'max')
  local why = 'a later run, ' .. id .. ', took its place under the limit ' .. key
  if f[1] == 'cancel_newest' then return 'the limit ' .. key .. ' had no room for it' end
  if f[1] == 'cancel_running' then displace(key, tonumber(f[2] or 1), why) end
  if f[1] == 'keep_latest' then
    for _, other in ipairs(call('ZRANGE', key_waiters(key), 0, LET_IN_A_CALL - 1)) do
      if other ~= id then end_with(other, load(other), 'cancel', 'cancelled', 'cancelled', why) end
    end
  end
end

-- A pending run finds no room when it is claimed.
local function hold_up(id, run, key, when)
  unseize(id, run)
  local unwanted = make_way(id, key)
  if unwanted then return end_with(id, run, 'cancel', 'cancelled', 'cancelled', unwanted) end
  run.lane, run.entry, run.reason = plain(run.lane), '', 'limit ' .. key
  move(id, run, 'block', 'blocked', run.reason, 'entry', '', 'lane', run.lane, 'reason', run.reason, 'more', 1)
  stand_in_line(id, run, key)
  if when then set_timer(run.reason, when) end
end

-- Let the first of a line in, or move it to the line of the key that it now has to wait for.
local function let_one_in(id, key)
  local place, run = call('ZSCORE', key_waiters(key), id), load(id)
  call('ZREM', key_waiters(key), id)
  if not run or run.state ~= 'blocked' or line_of(run) ~= key then return end
  local needs = needs_of(run) or {}
  local other, when = obstacle(needs, true)
  if other then
    run.reason = 'limit ' .. other
    call('HSET', run.key, 'reason', run.reason)
    stand_in_line(id, run, other, place)
    if when then set_timer(run.reason, when) end
    return
  end
  seize(id, needs)
  run.lane = front(run.lane)
  move(id, run, 'unblock', 'pending', '', 'entry', enqueue(id, run), 'lane', run.lane, 'reason', '', 'reserved', 1)
end

-- What the first of a line wants of a key.
local function wanted_by(id, key)
  local limits = call('HGET', key_run(id), 'limits')
  for own, units in string.gmatch(limits or '', '(%S+) (%d+)') do
    if own == key then return tonumber(units) end
  end
  return 1
end

local function applies_by_itself(key) return key == 'global' or string.match(key, '^queue:') end

-- A limit has come or gone: note it, and those that apply by themselves where every claim sees them.
local function enlist(key)
  if call('EXISTS', key_limit(key)) == 1 then
    call('SADD', key_limits(), key)
  else
    call('SREM', key_limits(), key)
    if applies_by_itself(key) then call('DEL', key_holders(key)) end
  end
  if not applies_by_itself(key) then return end
  local names = {}
  for _, name in ipairs(call('SMEMBERS', key_limits())) do
    if applies_by_itself(name) then names[#names + 1] = name end
  end
  table.sort(names)
  implied = #names > 0 and ' ' .. table.concat(names, ' ') .. ' ' or ''
  call('HSET', key_cursors(), 'implied', implied)
end

-- Let nobody in under a key until a time; a time that has passed opens the gate.
local function shut(key, until_ms, why)
  local open_at = math.min(tonumber(until_ms), DUE_AT_MS_MAX)
  if open_at > now then
    call('HSET', key_limit(key), 'shut_until_ms', string.format('%.0f', open_at), 'shut_why', why)
    set_timer('limit ' .. key, open_at)
  else
    call('HDEL', key_limit(key), 'shut_until_ms', 'shut_why')
    freed[#freed + 1] = key
  end
  enlist(key)
end

-- The timer of a key has rung: its gate is open, or its bucket holds enough.
local function ring_limit(key)
  local shut_until = tonumber(call('HGET', key_limit(key), 'shut_until_ms') or nil)
  if shut_until and shut_until <= now then shut(key, 0) end
  timers['limit ' .. key] = false
  freed[#freed + 1] = key
end

-- Let in whom there is room for, a bounded number in one call; the timer of a key goes on with the rest.
local function let_in(budget)
  while #freed > 0 do
    local key = table.remove(freed)
    while true do
      local id = call('ZRANGE', key_waiters(key), 0, 0)[1]
      if not id then
        -- A gate opens, and is forgotten, also when nobody waits at it.
        timers['limit ' .. key] = tonumber(call('HGET', key_limit(key), 'shut_until_ms') or nil) or false
        break
      end
      local why, when = refuses(key, wanted_by(id, key))
      if when then set_timer('limit ' .. key, when) end
      if not why and budget <= 0 then ring_at_once('limit ' .. key) end
      if why or budget <= 0 then break end
      budget = budget - 1
      let_one_in(id, key)
    end
  end
end
