--[[ worker/claim_delivered: claim the entries that a blocking read delivered, or that are left in the worker's pending list.
KEYS   base
ARGV   now_ms worker epoch nonce count calls
ROWS   lane entry
REPLY  [ok, revision, run, fence, lane, spec, run, ...], evicted, draining, lease_expired
VERBS  claim block cancel expire unblock skip wake
FLAGS  allow-oom
USES   plans limits waits session_turns end_run merge_queue claim_runs remove_worker
An entry that is not in this worker's pending list is ignored; an entry without a waiting run is dropped; an entry of a
run that the worker holds already is skipped. A worker that may not claim gets nothing: its entries go to others, at
once if it is draining, else when it is retired. A blocking read over several lanes can deliver an entry of each:
entries beyond `count`, or `calls` of function runs, or of a paused queue, go to others. After a call whose reply was
lost, a claim or an adopt, the reply has the runs of that call too. ]]

-- Whether an entry is in this worker's pending list and its run not yet in the worker's hands; and the run's id.
local function is_unclaimed_entry(lane, entry)
  local found = redis.pcall('XPENDING', key_lane(lane), 'workers', entry, entry, 1, worker)
  if found.err or #found == 0 then return false end
  local body = call('XRANGE', key_lane(lane), entry, entry)[1]
  local id = body and body[2][2] or ''
  local run = load(id)
  return not (run and is_held(run) and run.worker == worker and is_current_entry(run, lane, entry)), id
end

local word = refuse_claim(worker, epoch)
if word == 'draining' then
  for lane, entry in next_row do
    if is_unclaimed_entry(lane, entry) then return_entry(lane, entry, worker) end
  end
end
if word then return word end

local given = start_claim_reply(worker, 'last_claim', nonce)
local free_slots = { [true] = tonumber(calls), [false] = tonumber(count) }
for at = 5, #given, 4 do
  local kind = is_function_lane(given[at])
  free_slots[kind] = free_slots[kind] - 1
end
for lane, entry in next_row do
  local open, id = is_unclaimed_entry(lane, entry)
  local kind = is_function_lane(lane)
  if is_fair_lane(lane) then lanes_to_refill[lane] = true end
  if open and (free_slots[kind] <= 0 or is_paused(lane)) then
    return_entry(lane, entry, worker)
  elseif open and claim_entry(lane, entry, id, worker, nonce, given) then
    free_slots[kind] = free_slots[kind] - 1
  end
end
record_claims(worker, 'last_claim', nonce)
return given
