--[[ Lanes, their entries, and the queues of fair lanes. Part of every script, after the prelude. ]]

-- A number that changes with the set of lanes, by which workers notice the change.
local function lanes_revision() return call('HGET', key_cursors(), 'lanes_revision') or '0' end

local paused_queues = nil

-- Whether the queue of a lane, or every queue, is paused.
local function is_paused(lane)
  if not paused_queues then
    paused_queues = {}
    for _, queue in ipairs(call('HKEYS', key_paused())) do paused_queues[queue] = true end
  end
  return paused_queues['*'] or paused_queues[queue_of(lane)]
end

-- Notify all workers at once that the lanes have changed.
local function announce_lanes(detail)
  call('HINCRBY', key_cursors(), 'lanes_revision', 1)
  for _, worker in ipairs(call('ZRANGE', key_workers(), 0, 999)) do
    call('XADD', key_worker_inbox(worker), '*', 'order', 'lanes', 'run', '', 'fence', '', 'detail', detail)
  end
end

local opened_lanes = {}

-- Make sure that a lane and its group exist, and tell the workers of a new one.
local function open_lane(lane)
  if opened_lanes[lane] then return end
  opened_lanes[lane] = true
  if call('ZADD', key_lanes(), 'NX', now, lane) == 0 then return end
  redis.pcall('XGROUP', 'CREATE', key_lane(lane), 'workers', '0', 'MKSTREAM')
  announce_lanes(lane)
end

-- A lane is named `queue:priority:demands`. After the priority, `f` marks a lane of function runs, `~` a fair lane, in
-- which keys take turns, and `+` the front lane of another, for runs that have waited already.
local function normal_lane(lane) return (string.gsub(lane, '^([^:]*:%df?~?)%+', '%1')) end

local function front_lane(lane) return (string.gsub(normal_lane(lane), '^([^:]*:%df?~?)', '%1+')) end

local function is_function_lane(lane) return string.find(lane, '^[^:]*:%df') ~= nil end

local function is_fair_lane(lane) return string.find(lane, '~:', 1, true) ~= nil end

-- Runs of a fair lane wait in a queue, ordered by virtual time: the runs of one key are 1/weight apart, and a new key
-- starts at the present time. The stream gets the next runs as workers ask for them.
local function join_fair_queue(id, run)
  local shares, key = key_fair_shares(run.lane), run.fair_key or call('HGET', run.key, 'fair_key')
  local present_time, own = call('ZSCORE', shares, ''), call('ZSCORE', shares, '=' .. key)
  local start = math.max(tonumber(present_time or 0), tonumber(own or 0))
  local weight = tonumber(call('HGET', key_fair_weights(), queue_of(run.lane) .. ' ' .. key) or 1)
  call('ZADD', shares, string.format('%.17g', start + 1 / weight), '=' .. key)
  call('ZADD', key_fair_queue(run.lane), string.format('%.17g', start), id)
  lanes_to_refill[run.lane] = true
  return ''
end

-- Delete the shares of an empty fair queue.
local function close_fair_queue(lane)
  if call('EXISTS', key_fair_queue(lane)) == 0 then call('DEL', key_fair_shares(lane)) end
end

-- Remove a run that ends or moves from its fair queue, if it is in one.
local function leave_fair_queue(id, run)
  if run.state ~= 'pending' or run.entry ~= '' then return end
  call('ZREM', key_fair_queue(run.lane), id)
  close_fair_queue(run.lane)
end

-- Fill the stream of a fair lane from its queue, up to so many undelivered entries.
local function refill_lane(lane, wanted)
  local line, key = key_fair_queue(lane), key_lane(lane)
  if call('EXISTS', line) == 0 then return end
  local group = redis.pcall('XINFO', 'GROUPS', key)[1]
  local ready = #call('XRANGE', key, '(' .. (group and group[8] or '0-0'), '+', 'COUNT', wanted)
  if ready >= wanted then return end
  open_lane(lane)
  local heads = call('ZPOPMIN', line, wanted - ready)
  for at = 1, #heads, 2 do
    call('HSET', key_run(heads[at]), 'entry', call('XADD', key, '*', 'run', heads[at]))
  end
  call('ZADD', key_fair_shares(lane), heads[#heads], '')
  call('ZREMRANGEBYSCORE', key_fair_shares(lane), '-inf', '(' .. heads[#heads])
  close_fair_queue(lane)
end

-- Add a run to its lane: as an entry, or to the queue of a fair lane.
local function enqueue(id, run)
  open_lane(run.lane)
  run.entry = is_fair_lane(run.lane) and join_fair_queue(id, run) or call('XADD', key_lane(run.lane), '*', 'run', id)
  return run.entry
end

-- Whether an entry is the current one of a run. Entries of two lanes can have the same id.
local function is_current_entry(run, lane, entry) return run.entry == entry and run.lane == lane end

-- Throw away an entry that stands for nothing (any more).
local function drop_entry(lane, entry)
  push(acked_entries, lane, entry)
  if is_fair_lane(lane) then lanes_to_refill[lane] = true end
end

local function is_entry_before(entry, other)
  if #entry == #other then return entry < other end
  local ms, number = string.match(entry, '^(%d+)-(%d+)$')
  local other_ms, other_number = string.match(other, '^(%d+)-(%d+)$')
  return #ms < #other_ms or ms < other_ms or ms == other_ms and tonumber(number) < tonumber(other_number)
end

-- The acknowledged entries that must be deleted one by one. All entries older than the oldest one in a pending list are
-- done: to trim them at once is cheaper for many entries.
local function trim_entries(key, entries, last_read)
  if #entries < FEW_ENTRIES or not last_read then return entries end
  local first = call('XPENDING', key, 'workers', '-', '+', 1)[1]
  local horizon, rest = first and first[1] or last_read, {}
  call('XTRIM', key, 'MINID', '=', horizon)
  for _, entry in ipairs(entries) do
    if not is_entry_before(entry, horizon) then rest[#rest + 1] = entry end
  end
  return rest
end

-- Acknowledge and delete entries of a lane. Where older ones live on, deleting the one that was read last would turn
-- the group's lag, which autoscalers and dashboards read, into nil: that one is spared until more has been read.
local function delete_entries(lane, entries)
  local key = key_lane(lane)
  local group, spared = redis.pcall('XINFO', 'GROUPS', key)[1], call('HGET', key_kept_entries(), lane)
  local last_read, doomed, kept = group and group[8], {}, nil
  if spared then entries[#entries + 1] = spared end
  each_chunk(entries, 1000, function(...) call('XACK', key, 'workers', ...) end)
  for _, entry in ipairs(trim_entries(key, entries, last_read)) do
    if entry == last_read then kept = entry else doomed[#doomed + 1] = entry end
  end
  each_chunk(doomed, 1000, function(...) call('XDEL', key, ...) end)
  local oldest = kept and call('XRANGE', key, '-', '+', 'COUNT', 1)[1]
  if kept and (not oldest or oldest[1] == kept) then
    call('XDEL', key, kept)
    kept = nil
  end
  if kept ~= (spared or nil) then
    if kept then call('HSET', key_kept_entries(), lane, kept) else call('HDEL', key_kept_entries(), lane) end
  end
end
