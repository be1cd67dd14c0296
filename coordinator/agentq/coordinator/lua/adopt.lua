--[[ adopt: claim the entries that a blocking read delivered, or that the worker's own pending list still holds.
KEYS   base
ARGV   now_ms worker epoch nonce count calls
ROWS   lane entry
REPLY  [ok, revision, run, fence, lane, spec, run, ...], evicted, draining, unrenewed
VERBS  claim block cancel expire unblock skip wake
FLAGS  allow-oom
USES   planning limiting waiting turns ending merging claiming retiring
An entry that is not in this worker's pending list is left alone; one that stands for nothing is dropped; one of a run
that the worker holds already is passed over. A worker that may not claim gets nothing: its entries go to others, at
once if it is draining, and else when it is retired. A blocking read over several lanes can deliver an entry of each:
what exceeds `count`, or `calls` of function runs, or is from a queue that is paused, goes to others. After a call whose reply was lost, a claim or an
adopt, the reply has what that one
took, too. ]]

-- Whether an entry is in this worker's pending list and its run not yet in the worker's hands; and the run's id.
local function is_open(lane, entry)
  local found = redis.pcall('XPENDING', key_lane(lane), 'workers', entry, entry, 1, worker)
  if found.err or #found == 0 then return false end
  local body = call('XRANGE', key_lane(lane), entry, entry)[1]
  local id = body and body[2][2] or ''
  local run = load(id)
  return not (run and is_held(run) and run.worker == worker and is_home(run, lane, entry)), id
end

local word = refuse_claimant(worker, epoch)
if word == 'draining' then
  for lane, entry in next_row do
    if is_open(lane, entry) then give_back(lane, entry, worker) end
  end
end
if word then return word end

local given = granted(worker, 'claim', nonce)
local room = { [true] = tonumber(calls), [false] = tonumber(count) }
for at = 5, #given, 4 do
  local kind = is_of_functions(given[at])
  room[kind] = room[kind] - 1
end
for lane, entry in next_row do
  local open, id = is_open(lane, entry)
  local kind = is_of_functions(lane)
  if is_fair(lane) then uneven[lane] = true end
  if open and (room[kind] <= 0 or is_paused(lane)) then
    give_back(lane, entry, worker)
  elseif open and take(lane, entry, id, worker, nonce, given) then
    room[kind] = room[kind] - 1
  end
end
grant(worker, 'claim', nonce)
return given
