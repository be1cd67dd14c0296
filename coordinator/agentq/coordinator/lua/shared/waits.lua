--[[ Waiting: what a parked run waits for, what has come for it, its children, and who wakes it.

What comes is kept: a signal in the run's mail, a child that has ended among the returned, until an attempt that was
handed it parks again or the run ends. Whether a run is to be woken is read from what is there, never from what has just
happened; so it makes no difference whether that came before the run parked, or after. ]]

local function has_name(names, name) return string.find(names, ' ' .. name .. ' ', 1, true) ~= nil end

-- The messages in a run's mail that it waits for, as the server tells them.
local function awaited_signals(id, names, last)
  local found = {}
  if names == '' then return found end
  for _, entry in ipairs(call('XRANGE', key_pending_signals(id), '-', last or '+')) do
    if has_name(names, entry[2][2]) then found[#found + 1] = entry end
  end
  return found
end

-- Whether a run that waits for all of its children, or for any of them, has what it waits for. It has if there are none.
local function have_children_ended(id, mode)
  if mode == '' then return false end
  if mode == 'any' and call('EXISTS', key_ended_children(id)) == 1 then return true end
  return call('EXISTS', key_children(id)) == 0
end

-- Let a waiting run go on.
local function wake_run(id, run, verb, why)
  transition(id, run, verb, 'pending', why, 'entry', enqueue(id, run), 'reason', '', 'due_at_ms', '')
end

-- Forget what was handed to the attempt that now parks: it has taken it, and will not ask for it again.
local function delete_received(id, run)
  local f = call('HMGET', run.key, 'delivered_to', 'awaited_signals')
  local fence, last, place = string.match(f[1] or '', '^(%S+) (%S+) (%S+)$')
  if fence ~= run.fence then return end
  local read = {}
  for _, entry in ipairs(last ~= '-' and awaited_signals(id, f[2], last) or {}) do read[#read + 1] = entry[1] end
  if #read > 0 then call('XDEL', key_pending_signals(id), unpack(read)) end
  if place ~= '-' then call('ZREMRANGEBYSCORE', key_ended_children(id), '-inf', place) end
end

-- A run that is about to be born, in place of others perhaps, is somebody's child; why it cannot be, or nil.
local function refuse_child(parent_id, replaced, most)
  local parent = load(parent_id)
  if not parent or is_ended(parent) then return 'parent_ended ' .. parent_id end
  for _, other in pairs(replaced) do
    if other == parent_id then return 'parent_ended ' .. parent_id end
  end
  local known = call('ZCARD', key_children(parent_id)) + call('ZCARD', key_ended_children(parent_id))
  if known >= math.min(most or CHILDREN_PER_RUN, CHILDREN_PER_RUN) then return 'too_many_children ' .. parent_id end
end

-- It is live, and its parent, if that is, knows.
local function add_child(id, run)
  local parent = load(run.parent)
  if not parent or is_ended(parent) then return end
  call('ZADD', key_children(run.parent), 0, id)
  if not parent.has_signals_or_children then call('HSET', parent.key, 'has_signals_or_children', 1, 'extended', 1) end
end

-- An ended child begins again: its parent waits for it once more.
local function readd_child(id, run)
  call('ZREM', key_ended_children(run.parent), id .. ' ' .. run.state)
  add_child(id, run)
end

-- A child has ended; its parent is told, unless that has ended too.
local function notify_parent(id, run)
  if call('ZREM', key_children(run.parent), id) == 0 then return end
  local parent = load(run.parent)
  if not parent or is_ended(parent) then return end
  call('ZADD', key_ended_children(run.parent), call('HINCRBY', parent.key, 'ended_children_count', 1), id .. ' ' .. run.state)
  if parent.state ~= 'waiting' then return end
  local mode = call('HGET', parent.key, 'awaited_children') or ''
  if have_children_ended(run.parent, mode) then wake_run(run.parent, parent, 'wake', 'child ' .. id .. ' is ' .. run.state) end
end

-- A run has ended: nothing will be taken from its mail any more. True if it leaves children that are to be cancelled.
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
