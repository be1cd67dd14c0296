--[[ adopt: claim the entries that a blocking read delivered, or that the worker's own pending list still holds.
KEYS   base
ARGV   now_ms worker epoch nonce
ROWS   lane entry
REPLY  [ok, revision, run, fence, lane, spec, run, ...], evicted, draining, unrenewed
VERBS  claim expire unblock skip
FLAGS  allow-oom
USES   claiming
An entry that is not in this worker's pending list is left alone; one that stands for nothing is dropped; one of a run
that the worker holds already is passed over. A worker that may not claim gets nothing, and its entries are given back
when it is retired. ]]

local word = refuse_claimant(worker, epoch)
if word then return word end

local given, again = granted(worker, nonce)
if again then return given end

for lane, entry in next_row do
  local mine = redis.pcall('XPENDING', key_lane(lane), 'workers', entry, entry, 1, worker)
  if not mine.err and #mine > 0 then
    local body = call('XRANGE', key_lane(lane), entry, entry)[1]
    local run = body and load(body[2][2])
    local held = run and is_held(run) and run.worker == worker and run.entry == entry
    if not held then take(lane, entry, body and body[2][2] or '', worker, nonce, given) end
  end
end
grant(worker, nonce)
return given
