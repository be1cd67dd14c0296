--[[ Waiting: what a parked run waits for, the signals and ended children it has received, and its wake-up.

A received signal or ended child is kept until an attempt that got it parks again, or the run ends. Whether a run is
woken is decided by these stored facts, never by the latest event; so it makes no difference whether a signal came
before the run parked, or after. ]]

local function has_name(names, name) return string.find(names, ' ' .. name .. ' ', 1, true) ~= nil end

-- The received signals that a run waits for, as stream entries.
local function awaited_signals(id, names, last)
  local found = {}
  if names == '' then return found end
  for _, entry in ipairs(call('XRANGE', key_pending_signals(id), '-', last or '+')) do
    if has_name(names, entry[2][2]) then found[#found + 1] = entry end
  end
  return found
end

-- Whether the wait of a run for all or any of its children is over; true if it has no children.
local function have_children_ended(id, mode)
  if mode == '' then return false end
  if mode == 'any' and call('EXISTS', key_ended_children(id)) == 1 then return true end
  return call('EXISTS', key_children(id)) == 0
end

-- Wake a waiting run.
local function wake_run(id, run, verb, why)
  transition(id, run, verb, 'pending', why, 'entry', enqueue(id, run), 'reason', '', 'due_at_ms', '')
end

-- Delete the signals and children delivered to the attempt that now parks; it will not ask for them again.
local function delete_received(id, run)
  local f = call('HMGET', run.key, 'delivered_to', 'awaited_signals')
  local fence, last, place = string.match(f[1] or '', '^(%S+) (%S+) (%S+)$')
  if fence ~= run.fence then return end
  local read = {}
  for _, entry in ipairs(last ~= '-' and awaited_signals(id, f[2], last) or {}) do read[#read + 1] = entry[1] end
  if #read > 0 then call('XDEL', key_pending_signals(id), unpack(read)) end
  if place ~= '-' then call('ZREMRANGEBYSCORE', key_ended_children(id), '-inf', place) end
end

-- Why a new run, which may replace others, cannot be a child of this parent; nil if it can.
local function refuse_child(parent_id, replaced, most)
  local parent = load(parent_id)
  if not parent or is_ended(parent) then return 'parent_ended ' .. parent_id end
  for _, other in pairs(replaced) do
    if other == parent_id then return 'parent_ended ' .. parent_id end
  end
  local known = call('ZCARD', key_children(parent_id)) + call('ZCARD', key_ended_children(parent_id))
  if known >= math.min(most or CHILDREN_PER_RUN, CHILDREN_PER_RUN) then return 'too_many_children ' .. parent_id end
end

-- Add a live run to the children of its parent, if that is live.
local function add_child(id, run)
  local parent = load(run.parent)
  if not parent or is_ended(parent) then return end
  call('ZADD', key_children(run.parent), 0, id)
  if not parent.has_signals_or_children then call('HSET', parent.key, 'has_signals_or_children', 1, 'extended', 1) end
end

-- An ended child is requeued: its parent waits for it again.
local function readd_child(id, run)
  call('ZREM', key_ended_children(run.parent), id .. ' ' .. run.state)
  add_child(id, run)
end

-- A child has ended: notify its parent, unless that has ended too.
local function notify_parent(id, run)
  if call('ZREM', key_children(run.parent), id) == 0 then return end
  local parent = load(run.parent)
  if not parent or is_ended(parent) then return end
  call('ZADD', key_ended_children(run.parent), call('HINCRBY', parent.key, 'ended_children_count', 1), id .. ' ' .. run.state)
  if parent.state ~= 'waiting' then return end
  local mode = call('HGET', parent.key, 'awaited_children') or ''
  if have_children_ended(run.parent, mode) then wake_run(run.parent, parent, 'wake', 'child ' .. id .. ' is ' .. run.state) end
end

-- A run has ended: delete its received signals. True if it leaves children that must be cancelled.
local function clear_signals_and_children(id, run)
  call('UNLINK', key_pending_signals(id), key_ended_children(id))
  if run.state ~= 'completed' and call('HGET', run.key, 'children') ~= 'leave' then
    return call('EXISTS', key_children(id)) == 1
  end
  call('UNLINK', key_children(id))
  return false
end

-- Cancel children of a run that has ended, up to so many in one call; returns how many.
local function cancel_children(id, state, most)
  local children = most > 0 and call('ZPOPMIN', key_children(id), most) or {}
  local why = 'its parent ' .. id .. ' is ' .. state
  for at = 1, #children, 2 do
    local child = load(children[at])
    if child and is_held(child) then
      if not child.stop_at_ms then order_stop(children[at], child, why, STOP_DEADLINE_MS) end
    elseif child and not is_ended(child) then
      end_run_because(children[at], child, 'cancel', 'cancelled', 'cancelled', why)
    end
  end
  return #children / 2
end
