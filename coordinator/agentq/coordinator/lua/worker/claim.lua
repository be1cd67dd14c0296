--[[ worker/claim: claim up to a number of pending runs for a worker, in the order of its lanes.
KEYS   base
ARGV   now_ms worker epoch nonce count calls with_read
ROWS   lane
REPLY  [ok, revision, run, fence, lane, spec, run, ...], evicted, draining, lease_expired
VERBS  claim block cancel expire unblock skip wake
FLAGS  allow-oom
USES   plans limits waits session_turns end_run merge_queue claim_runs
The lanes are those that the worker may serve, the most urgent first. `count` is the number of runs that take a slot,
`calls` that of function runs, which wait in lanes of their own. `with_read` is not empty for a call sent along with a
blocking read: the entry that the read delivered, if no worker has read more since, is claimed first. The nonce names
this call: a repeated call after a lost reply gets the same runs. `revision` tells when the set of lanes has changed. ]]

local word = refuse_claim(worker, epoch)
if word then return word end

local given, is_repeat = start_claim_reply(worker, 'last_claim', nonce)
if is_repeat then return given end

local slot_lanes, lanes_of_functions = {}, {}
for lane in next_row do
  local kind = is_function_lane(lane) and lanes_of_functions or slot_lanes
  kind[#kind + 1] = lane
end
count, calls = tonumber(count), tonumber(calls)
if with_read ~= '' then
  count = count - claim_last_delivered(slot_lanes, count, worker, nonce, given)
  calls = calls - claim_last_delivered(lanes_of_functions, calls, worker, nonce, given)
end
claim_from_lanes(slot_lanes, count, 'low_priority_runs', worker, nonce, given)
claim_from_lanes(lanes_of_functions, calls, 'low_priority_calls', worker, nonce, given)
record_claims(worker, 'last_claim', nonce)
return given
