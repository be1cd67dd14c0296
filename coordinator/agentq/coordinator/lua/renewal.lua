--[[ How an ended run begins again: with fresh budgets, and with its history. ]]

-- Why a run is not to begin again, or nil.
local function refuse_renewal(id, run)
  if not is_ended(run) then return 'wrong_state ' .. run.state end
  if call('ZSCORE', key_settling(), id) then return 'settling' end
  local refused = run.turn and refuse_turn(run.turn, call('HGET', run.key, 'agent'))
  if refused then return refused end
  local other = run.dedupe and holder_of(run.dedupe)
  if other and other ~= id then return 'duplicate ' .. other end
end

-- What was noted of its workspace, for whoever begins again. What a completed run delivered is known: its marker counts from
-- there on.
local function noted_before(run, work, outcome)
  local noted = cjson.decode(work)
  noted.step, noted.rounds, noted.outcome = 'requeued', nil, nil
  local delivered = run.state == 'completed' and outcome and cjson.decode(outcome).work
  if delivered and delivered.merged and delivered.commit then noted.base = delivered.commit end
  return json(noted)
end

local function forget_life(run)
  local f = call('HMGET', run.key, 'outcome', 'work', 'spending')
  if run.attempt > 0 then
    local record, value = archive(run, 'requeue', f[1])
    call('HSET', run.key, record, value)
  end
  if f[2] then call('HSET', run.key, 'work', noted_before(run, f[2], f[1])) end
  if f[3] then call('HSET', run.key, 'spending_before', f[3]) end
  call('HDEL', run.key, 'outcome', 'finished_at_ms', 'failures', 'crashes', 'deferrals', 'claimed_at_ms',
    'started_at_ms', 'progress', 'progress_number', 'wanted', 'due_at_ms', 'until_ms', 'reason', 'stop_at_ms', 'bound',
    'parked_at_ms', 'awaits', 'awaits_children', 'awaits_until_ms', 'saved', 'handed', 'returns', 'follows', 'follower',
    'unbegun')
  for class in pairs(retry_policy(run).classes or {}) do call('HDEL', run.key, 'spent:' .. class) end
  run.until_ms, run.due_at_ms = nil, nil
end

-- Let a run begin again that nothing refuses; returns the state it is in now.
local function renew(id, run, op)
  if run.dedupe then call('SET', key_dedupe(run.dedupe), id) end
  if run.parent then rejoin_parent(id, run) end
  forget_life(run)
  if run.schedule then call('ZADD', key_made(run.schedule), 0, id) end
  if run.turn then
    join_turns(id, run)
  else
    run.stays = nil
    call('HDEL', run.key, 'agent_session', 'host', 'account', 'stays', 'totals')
  end
  run.lane = lane_home(run)
  local waits = run.turn and first_turn(run.turn) ~= id
  if waits then call('HSET', run.key, 'reason', 'turn') end
  move(id, run, 'requeue', waits and 'blocked' or 'pending', '', 'entry', waits and '' or enqueue(id, run), 'fence', '',
    'worker', '', 'lane', run.lane, 'op', op, 'more', 1, 'requeued_at_ms', stamp)
  return run.state
end
