--[[ Turns: the queue of a session, of which one turn is unblocked at a time, and the host of its conversation.

A turn joins the queue of its session when it is created or requeued, and leaves it when it ends in any state. Only the
first turn may be in another state than blocked: so two turns never run at once, and one that waits, backs off or is
lost keeps its place. When the first has left, the next is unblocked. ]]

-- Sessions of which a turn has ended.
local sessions_to_advance = {}

local function first_turn(session) return call('ZRANGE', key_session_turns(session), 0, 0)[1] end

-- Why a session takes no turn of this agent; nil if it does.
local function refuse_turn(session, agent)
  local f = call('HMGET', key_session(session), 'agent', 'state')
  if not f[1] then return 'no_session ' .. session end
  if f[2] ~= 'open' then return 'closed_session ' .. session end
  if f[1] ~= agent then return 'wrong_agent ' .. session .. ', which is one of ' .. f[1] end
end

local function touch_session(session)
  call('HSET', key_session(session), 'used_at_ms', stamp)
  call('ZADD', key_sessions(), stamp, session)
end

-- Append a turn to the queue.
local function enqueue_turn(id, run)
  local place = call('HINCRBY', key_session(run.turn_of), 'turn_count', 1)
  call('ZADD', key_session_turns(run.turn_of), place, id)
  call('HSET', run.key, 'turn_number', place)
  call('HSET', key_session(run.turn_of), 'last_turn', id)
  touch_session(run.turn_of)
end

local function remove_turn(id, run)
  call('ZREM', key_session_turns(run.turn_of), id)
  if call('EXISTS', key_session(run.turn_of)) == 1 then touch_session(run.turn_of) end
  sessions_to_advance[run.turn_of] = true
end

-- A closed session without live turns is deleted after KEEP_MS.
local function schedule_session_expiry(session)
  if call('HGET', key_session(session), 'state') == 'closed' then set_timer('session ' .. session, now + KEEP_MS) end
end

-- Unblock the first turn, unless it waits for something else or is unblocked already.
local function unblock_next_turn(session)
  while true do
    local id = first_turn(session)
    if not id then return schedule_session_expiry(session) end
    local run = load(id)
    if run and not is_ended(run) then
      local waits = awaited_limit(run) or call('EXISTS', key_dependencies(id)) == 1 or call('HEXISTS', run.key, 'dependencies_open') == 1
      if run.state == 'blocked' and not waits then unblock_run(id, run) end
      return
    end
    -- Only a change of the run's key by hand leaves it here.
    call('ZREM', key_session_turns(session), id)
  end
end

local function unblock_next_turns()
  for session in pairs(sessions_to_advance) do unblock_next_turn(session) end
  sessions_to_advance = {}
end

-- The timer of a closed session is due. A session that still has turns gets another timer when the last of them ends.
local function run_session_timer(session)
  timers['session ' .. session] = false
  if call('HGET', key_session(session), 'state') ~= 'closed' or first_turn(session) then return end
  call('UNLINK', key_session(session), key_session_transcript(session))
  call('ZREM', key_sessions(), session)
end

-- The lane of the next attempt: while only one host can continue its conversation, with a demand for that host. The
-- run's own demand for a host is kept in `own_host_demand`, or `-` if it has none.
local function next_lane(run)
  local lane = normal_lane(run.lane)
  local host = run.pinned_host
  if run.turn_of then host = non_empty(call('HGET', key_session(run.turn_of), 'pinned_host')) end
  if not host and not run.own_host_demand then return lane end
  local place, text = string.match(lane, '^([^:]*:[^:]*:)(.*)$')
  local demands, own = {}, '-'
  for demand in string.gmatch(text, '[^,]+') do
    if string.match(demand, '^host=') then own = demand else demands[#demands + 1] = demand end
  end
  own = run.own_host_demand or own
  if host then
    call('HSET', run.key, 'own_host_demand', own)
    run.own_host_demand, own = own, 'host=' .. host
  else
    call('HDEL', run.key, 'own_host_demand')
    run.own_host_demand = nil
  end
  if own ~= '-' then demands[#demands + 1] = own end
  table.sort(demands, function(a, b) return string.match(a, '^[^=]*') < string.match(b, '^[^=]*') end)
  return place .. table.concat(demands, ',')
end
