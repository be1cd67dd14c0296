--[[ run/add_dependencies: add dependencies to a run whose submit takes several calls; the last call seals it.
KEYS   base
ARGV   now_ms id seal expires_ms
ROWS   parent
REPLY  ok, not_found, no_dependency ID, cycle ID
VERBS  submit unblock skip cancel wake
FLAGS
USES   plans limits waits session_turns end_run merge_queue
`seal` is 1 in the last call. `expires_ms` is the run's own patience, from its sealing on, or 0. A run that is
not open any more was sealed by this call, sent before, or has ended: there is nothing left to say of it. `cycle ID` means
that a parent was born later and waits itself, perhaps for this run: if everybody who waits is younger than whom it waits
for, nobody waits for itself. ]]

local run = load(id)
if not run then return 'not_found' end
if run.state ~= 'blocked' or call('HEXISTS', run.key, 'dependencies_open') == 0 then return 'ok' end
local parents = {}
for parent in next_row do
  -- It exists by now, but not for itself: as in a submit that has room for all dependencies.
  if parent == id then return 'no_dependency ' .. id end
  parents[#parents + 1] = parent
end
local missing_run = first_missing_run(parents)
if missing_run then return 'no_dependency ' .. missing_run end

local function blocked_at(run) return string.match(call('HGET', run.key, 'blocked_event_id') or '', '^(%d+)-(%d+)$') end

-- Whether a run waits, or will, and was born later. Births are told apart by the places of their events.
local function waits_and_is_newer(other)
  local waits = call('EXISTS', key_dependencies(other)) == 1 or call('HEXISTS', key_run(other), 'dependencies_open') == 1
  if not waits and call('HGET', key_run(other), 'reason') ~= 'turn' then return false end
  local own_ms, own_place = blocked_at(run)
  local ms, place = blocked_at({ key = key_run(other) })
  if not own_ms or not ms then return false end
  if ms ~= own_ms then return tonumber(ms) > tonumber(own_ms) end
  return tonumber(place) > tonumber(own_place)
end

-- Whether a run is a turn behind this one, of the same session.
local function is_later_turn(other)
  if not run.turn_of or call('HGET', key_run(other), 'turn_of') ~= run.turn_of then return false end
  local place = call('ZSCORE', key_session_turns(run.turn_of), other)
  return place and tonumber(place) > tonumber(call('ZSCORE', key_session_turns(run.turn_of), id))
end

for _, parent in ipairs(parents) do
  if waits_and_is_newer(parent) or is_later_turn(parent) then return 'cycle ' .. parent end
end
if run.plan then call('HSET', run.key, 'all_dependencies', (run.all_dependencies or '') .. ' ' .. table.concat(parents, ' ')) end
local ended = add_dependencies(id, parents)
if seal == '1' then
  call('HDEL', run.key, 'dependencies_open', 'expires_at_ms')
  timers[id] = false
  if tonumber(expires_ms) > 0 then
    timers[id] = now + expires_ms
    call('HSET', run.key, 'expires_at_ms', timers[id])
  end
end
for _, parent in ipairs(ended) do resolve_dependency(id, parent.id, parent.state) end
if seal == '1' and call('EXISTS', key_dependencies(id)) == 0 then
  run = load(id)
  if run.state == 'blocked' then unblock_run(id, run) end
end
return 'ok'
