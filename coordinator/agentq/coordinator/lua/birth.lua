--[[ How a run comes into the world: what is decided at its submit, whoever submits it. ]]

local TEXTS = { 'on_failed', 'dedupe', 'plan', 'session', 'retry', 'keep_ms', 'limits', 'fair', 'schedule' }

local function birth(id, lane, spec, run, reason, door)
  local key = run.key
  call('HSET', key, 'spec', spec, 'state', run.state, 'lane', lane, 'entry', run.entry, 'submitted_at_ms', stamp)
  if door then
    call('HSET', key, 'more', 1)
    for _, name in ipairs(TEXTS) do
      if door[name] then call('HSET', key, name, door[name]) end
    end
    if reason ~= '' then call('HSET', key, 'reason', reason) end
    if run.due_at_ms then call('HSET', key, 'due_at_ms', run.due_at_ms) end
    if run.until_ms then call('HSET', key, 'until_ms', run.until_ms) end
    if door.open then call('HSET', key, 'open', 1) end
    if door.schedule then call('ZADD', key_made(door.schedule), 0, id) end
  end
  reindex(id, lane, nil, run.state)
  local timer = next_timer(run)
  if timer then set_timer(id, timer) end
  append('submitted', id, run.state, run)
end

-- A live run with the same dedupe key: `replace` cancels it unless it has ever begun.
local function make_room(door)
  local other = door.dedupe and call('GET', key_dedupe(door.dedupe))
  local run = other and load(other)
  if not run then return nil end
  if door.if_live == 'reject' then return 'duplicate ' .. other end
  if door.if_live ~= 'replace' or run.attempt > 0 then return 'exists ' .. other end
  return nil, other, run
end

-- A run that could go at once finds no room under one of its keys; returns why it is not even to wait.
local function stop_short(id, run)
  local needs = needs_of(run)
  local key, when
  if needs then key, when = obstacle(needs) end
  if not key then
    enqueue(id, run)
    return nil
  end
  local unwanted = make_way(id, key)
  run.state, run.reason = 'blocked', 'limit ' .. key
  stand_in_line(id, run, key)
  if when then set_timer(run.reason, when) end
  return unwanted
end

local function put_with_door(id, lane, spec, door)
  local orphan = first_missing(door.after or {})
  if orphan then return 'no_dependency ' .. orphan end
  local word, other, replaced = make_room(door)
  if word then return word end
  if other then
    end_with(other, replaced, 'cancel', 'cancelled', 'cancelled', 'replaced by ' .. id)
  end
  local run = { key = key_run(id), lane = lane, entry = '', state = 'pending', due_at_ms = tonumber(door.due_at_ms),
    limits = door.limits, fair = door.fair }
  if door.delay_ms then run.due_at_ms = now + door.delay_ms end
  if door.open then
    run.until_ms = now + OPEN_MS
  elseif door.expires_ms then
    run.until_ms = now + door.expires_ms
  end
  local ended, reason, unwanted = {}, '', nil
  if door.after or door.open then
    ended, run.state, reason = await(id, door.after or {}), 'blocked', 'dependency'
  elseif run.due_at_ms and run.due_at_ms > now then
    run.state, reason = 'scheduled', 'delay'
  else
    unwanted = stop_short(id, run)
    reason = run.reason or ''
  end
  call('SADD', key_queues(), queue_of(lane))
  birth(id, lane, spec, run, reason, door)
  if door.dedupe then call('SET', key_dedupe(door.dedupe), id) end
  if door.plan then call('ZADD', key_plan(door.plan), 0, id) end
  if door.session then call('ZADD', key_session(door.session), 0, id) end
  if unwanted then end_with(id, load(id), 'cancel', 'cancelled', 'cancelled', unwanted) end
  for _, parent in ipairs(ended) do satisfy(id, parent.id, parent.state) end
  return 'ok'
end

-- Put a run into the world, or find it there. Without a door there is nothing to decide but its lane.
local function put(id, lane, spec, door)
  local key = key_run(id)
  local before = call('HGET', key, 'spec')
  if before then return before == spec and 'ok' or 'taken' end
  if door or needs_of({ lane = lane }) then return put_with_door(id, lane, spec, door or {}) end
  local run = { key = key, lane = lane, state = 'pending' }
  enqueue(id, run)
  birth(id, lane, spec, run)
  return 'ok'
end
