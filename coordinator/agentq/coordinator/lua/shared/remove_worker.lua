--[[ Removes a worker: its runs, the entries delivered to it, its keys. ]]

-- An entry that was delivered to a consumer and never claimed: its run gets a new entry, for anyone to claim.
local function return_entry(lane, entry, consumer)
  local key = key_lane(lane)
  local body = call('XRANGE', key, entry, entry)[1]
  local id = body and body[2][2]
  local run = id and load(id)
  if run and run.state == 'pending' and is_current_entry(run, lane, entry) then
    call('HSET', key_run(id), 'entry', enqueue(id, run))
  end
  if not (run and is_held(run) and is_current_entry(run, lane, entry) and run.worker ~= consumer) then drop_entry(lane, entry) end
  call('XACK', key, 'workers', entry)
end

-- Give back all that a consumer has; it is removed only in the call that finds it empty, since Redis drops what a
-- removed consumer holds.
local function clear_consumer(lane, consumer, budget)
  local key = key_lane(lane)
  local left = redis.pcall('XPENDING', key, 'workers', '-', '+', budget, consumer)
  if left.err then return 0 end
  for _, item in ipairs(left) do return_entry(lane, item[1], consumer) end
  if #left < budget then call('XGROUP', 'DELCONSUMER', key, 'workers', consumer) end
  return #left
end

-- Take everything from a worker, the duties and a bounded part of its runs in one call; true when nothing is left and
-- its keys are gone. `dismiss` says what becomes of a run it holds.
local function remove_worker(worker, state, dismiss)
  release_duties(worker)
  local budget = SWEEP_PER_CALL
  local holds = call('HGETALL', key_worker_runs(worker))
  for at = 1, math.min(#holds, 2 * budget), 2 do
    local id, fence = holds[at], string.match(holds[at + 1], '^%S+')
    local run = load(id)
    if run and is_held(run) and run.worker == worker and run.fence == fence then
      dismiss(id, run)
    else
      call('HDEL', key_worker_runs(worker), id)
    end
  end
  budget = budget - #holds / 2
  for _, lane in ipairs(call('ZRANGE', key_lanes(), 0, -1)) do
    if budget <= 0 then return false end
    budget = budget - clear_consumer(lane, worker, budget)
  end
  if budget <= 0 then return false end
  call('HSET', key_worker(worker), 'state', state, 'ended_at_ms', stamp)
  call('PEXPIRE', key_worker(worker), WORKER_RECORD_MS)
  call('ZADD', key_departed_workers(), now, worker)
  call('ZREMRANGEBYSCORE', key_departed_workers(), '-inf', now - WORKER_RECORD_MS)
  call('PEXPIRE', key_departed_workers(), WORKER_RECORD_MS)
  call('ZREM', key_workers(), worker)
  call('UNLINK', key_worker_lease(worker), key_worker_inbox(worker))
  return true
end
