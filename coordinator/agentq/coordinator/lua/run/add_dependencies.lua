--[[ run/add_dependencies: add dependencies to a run whose submit takes several calls; the last call seals it.
KEYS   base
ARGV   now_ms id seal expires_ms
ROWS   parent
REPLY  ok, not_found, no_dependency ID, cycle ID
VERBS  submit unblock skip cancel wake
FLAGS
USES   plans limits waits session_turns end_run merge_queue
`seal` is 1 in the last call. `expires_ms` is the time within which the run must start, from its sealing on, or 0. A run
that is not open any more was sealed by this call, sent before, or has ended: nothing is left to do. `cycle ID` means
that a parent waits for others itself, perhaps for this run, and was submitted or requeued later than it. A run has
always waited for less time than the runs it waits for, since no run waits yet for one that begins: so no dependencies
form a cycle. ]]

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

-- The place of the event by which a run last began to be blocked; of one that has been since before that was noted, the
-- first.
local function blocked_at(key)
  local ms, number = string.match(call('HGET', key, 'blocked_event_id') or '0-0', '^(%d+)-(%d+)$')
  return tonumber(ms), tonumber(number)
end

-- Whether a run waits for others, and has waited for less long than this one. A turn behind others does, too.
local function waits_and_is_newer(parent)
  local other = load(parent)
  if other.state ~= 'blocked' or awaited_limit(other) then return false end
  local own_ms, own_number = blocked_at(run.key)
  local ms, number = blocked_at(other.key)
  if ms ~= own_ms then return ms > own_ms end
  return number > own_number
end

for _, parent in ipairs(parents) do
  if waits_and_is_newer(parent) then return 'cycle ' .. parent end
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
