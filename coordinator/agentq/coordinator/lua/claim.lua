--[[ claim: give a worker as many pending runs as it asks for, in order of the lanes, or fewer if there are no more.
KEYS   base
ARGV   now_ms worker epoch nonce count calls fresh
ROWS   lane
REPLY  [ok, revision, run, fence, lane, spec, run, ...], evicted, draining, unrenewed
VERBS  claim block cancel expire unblock skip wake
FLAGS  allow-oom
USES   planning limiting waiting turns ending merging claiming
The lanes come most urgent first, as the worker may serve them. `count` is of runs that take a slot, `calls` of function
runs, which wait in lanes of their own. `fresh` is not empty for a call that was sent along with a blocking read: what
that delivered, if nobody has read more since, is taken first. The nonce names this call: sent again after a lost reply, it gets the same runs
again. `revision` tells when the set of lanes has changed. ]]

local word = refuse_claimant(worker, epoch)
if word then return word end

local given, again = granted(worker, 'claim', nonce)
if again then return given end

local others, functions = {}, {}
for lane in next_row do
  local kind = is_of_functions(lane) and functions or others
  kind[#kind + 1] = lane
end
count, calls = tonumber(count), tonumber(calls)
if fresh ~= '' then
  count = count - take_fresh(others, count, worker, nonce, given)
  calls = calls - take_fresh(functions, calls, worker, nonce, given)
end
serve(others, count, 'turn', worker, nonce, given)
serve(functions, calls, 'calls', worker, nonce, given)
grant(worker, 'claim', nonce)
return given
