--[[ Shared by the claiming scripts: checks that a worker may claim, and turns entries into attempts. ]]

-- A worker claims only under a lease that it renewed in time: after a gap it must first learn which runs it has lost.
local function refuse_claim(worker, epoch)
  local record = call('HMGET', key_worker(worker), 'epoch', 'state')
  if record[1] ~= epoch or record[2] == 'lost' or record[2] == 'gone' then return 'evicted' end
  if record[2] == 'draining' then return 'draining' end
  local lease = call('GET', key_worker_lease(worker))
  if not lease or tonumber(lease) <= now then return 'lease_expired' end
end

-- The start of the reply; or, for a repeated call, the whole reply as it was. The last call of each concurrent caller
-- in a worker is stored.
local function start_claim_reply(worker, caller, nonce)
  local reply = { 'ok', lanes_revision() }
  if call('HGET', key_worker(worker), caller) ~= nonce then return reply, false end
  local holds = call('HGETALL', key_worker_runs(worker))
  for at = 1, #holds, 2 do
    local fence = string.match(holds[at + 1], '^%S+')
    if string.match(fence, '-(.*)$') == nonce then
      local f = call('HMGET', key_run(holds[at]), 'lane', 'spec')
      for _, value in ipairs({ holds[at], fence, f[1], f[2] }) do reply[#reply + 1] = value end
    end
  end
  return reply, true
end

-- Read new entries of a lane into the worker's pending list; a destroyed group is created again, from the start.
local function read_lane(lane, worker, wanted)
  local key = key_lane(lane)
  if is_fair_lane(lane) then
    refill_lane(lane, wanted)
    lanes_to_refill[lane] = true
  end
  local reply = redis.pcall('XREADGROUP', 'GROUP', 'workers', worker, 'COUNT', wanted, 'STREAMS', key, '>')
  if reply and reply.err then
    if not call('ZSCORE', key_lanes(), lane) then return {} end
    call('XGROUP', 'CREATE', key, 'workers', '0', 'MKSTREAM')
    reply = call('XREADGROUP', 'GROUP', 'workers', worker, 'COUNT', wanted, 'STREAMS', key, '>')
  end
  return reply and reply[1] and reply[1][2] or {}
end

-- Handle a delivered entry that cannot be claimed: after a group was destroyed and created again, it can belong to a
-- held run, and is then given to the holder.
local function repair_entry(lane, entry, holder)
  if holder then
    call('XCLAIM', key_lane(lane), 'workers', holder, 0, entry, 'JUSTID')
  else
    drop_entry(lane, entry)
  end
end

local new_holds = {}
local dropped_count = 0

-- Claim the run of an entry. False if its run no longer waits here; the entry is then dropped.
local function claim_entry(lane, entry, id, worker, nonce, reply)
  local key = key_run(id)
  local f = call('HMGET', key, 'state', 'entry', 'lane', 'attempt', 'spec', 'extended')
  local m = f[6] and call('HMGET', key, 'expires_at_ms', 'reason', 'limits', 'reserved', 'plan', 'task') or {}
  local state, attempt, patience, reserved = f[1], tonumber(f[4] or 0), tonumber(m[1] or nil), m[4]
  local home = f[2] == entry and f[3] == lane
  if state ~= 'pending' or not home then
    repair_entry(lane, entry, (state == 'claimed' or state == 'running') and home and call('HGET', key, 'worker'))
    return false
  end
  if patience and patience <= now and attempt == 0 then
    drop_entry(lane, entry)
    end_run_because(id, load(id), 'expire', 'failed', 'timeout', 'not started in time')
    return false
  end
  local run = { key = key, state = state, lane = lane, attempt = attempt, worker = worker, expires_at_ms = patience,
    limits = m[3], plan = m[6] and m[5] }
  local stopped = run.plan and refuse_task_start(run.plan)
  if stopped then
    drop_entry(lane, entry)
    end_run_because(id, load(id), 'cancel', 'cancelled', 'cancelled', stopped)
    return false
  end
  local needs = limits_of(run)
  if reserved then call('HDEL', key, 'reserved') end
  if needs and reserved then needs = missing_limits(id, needs) end
  if needs then
    local obstructed, room_at = first_full_limit(needs, reserved)
    if obstructed then
      drop_entry(lane, entry)
      block_on_limit(id, load(id), obstructed, room_at)
      return false
    end
    acquire_limits(id, needs)
  end
  run.attempt = attempt + 1
  local fence = text_of(run.attempt) .. '-' .. nonce
  if non_empty(m[2]) then call('HDEL', key, 'reason') end
  transition(id, run, 'claim', 'claimed', '', 'attempt', text_of(run.attempt), 'fence', fence, 'worker', worker, 'claimed_at_ms', stamp)
  push(new_holds, worker, id)
  push(new_holds, worker, fence)
  local place = #reply
  reply[place + 1], reply[place + 2], reply[place + 3], reply[place + 4] = id, fence, lane, f[5]
  return true
end

-- Claim from each lane, up to `wanted` in all, the last delivered entry, if it is in this worker's pending list and not
-- claimed yet; returns how many.
local function claim_last_delivered(lanes, wanted, worker, nonce, reply)
  local taken = 0
  for _, lane in ipairs(lanes) do
    local key = key_lane(lane)
    local group = taken < wanted and not is_paused(lane) and redis.pcall('XINFO', 'GROUPS', key)[1]
    local last = group and group[8]
    if last and #call('XPENDING', key, 'workers', last, last, 1, worker) > 0 then
      local body = call('XRANGE', key, last, last)[1]
      if is_fair_lane(lane) then lanes_to_refill[lane] = true end
      if claim_entry(lane, last, body and body[2][2] or '', worker, nonce, reply) then taken = taken + 1 end
    end
  end
  return taken
end

-- Claim up to `wanted` runs from one lane, skipping entries without a waiting run; returns how many.
local function claim_from_lane(lane, wanted, worker, nonce, reply)
  local taken = 0
  while taken < wanted and dropped_count < DROP_PER_CALL do
    local number = wanted - taken
    local entries = read_lane(lane, worker, number)
    for _, entry in ipairs(entries) do
      if claim_entry(lane, entry[1], entry[2][2], worker, nonce, reply) then
        taken = taken + 1
      else
        dropped_count = dropped_count + 1
      end
    end
    if #entries < number then break end
  end
  return taken
end

-- Claim up to `wanted` runs from lanes, the most urgent first. One of every LOW_PRIORITY_EVERY runs is from one of the
-- less urgent lanes in turn, so that none starves; `cursor` is the field that counts the turns.
local function claim_from_lanes(all, wanted, cursor, worker, nonce, reply)
  if wanted <= 0 then return end
  local lanes = {}
  for _, lane in ipairs(all) do
    if not is_paused(lane) then lanes[#lanes + 1] = lane end
  end
  local taken = 0
  local turn = #lanes > 1 and tonumber(call('HGET', key_cursors(), cursor) or 0) or 0
  local low = #lanes > 1 and math.floor((turn + wanted) / LOW_PRIORITY_EVERY) - math.floor(turn / LOW_PRIORITY_EVERY) or 0
  for pick = 1, low do
    for step = 0, #lanes - 2 do
      local place = 2 + (math.floor(turn / LOW_PRIORITY_EVERY) + pick + step) % (#lanes - 1)
      taken = taken + claim_from_lane(lanes[place], 1, worker, nonce, reply)
      if taken == pick then break end
    end
    if taken < pick then break end
  end
  for _, lane in ipairs(lanes) do taken = taken + claim_from_lane(lane, wanted - taken, worker, nonce, reply) end
  if #lanes > 1 and taken > 0 then call('HSET', key_cursors(), cursor, (turn + taken) % LANE_TURNS) end
end

-- Record the runs that the worker now holds, and the call that claimed them.
local function record_claims(worker, caller, nonce)
  if not new_holds[worker] then return end
  each_chunk(new_holds[worker], 1000, function(...) call('HSET', key_worker_runs(worker), ...) end)
  call('HSET', key_worker(worker), caller, nonce)
end
