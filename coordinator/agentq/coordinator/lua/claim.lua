--[[ claim: give a worker as many pending runs as it asks for, in order of the lanes, or fewer if there are no more.
KEYS   base
ARGV   now_ms worker epoch nonce count
ROWS   lane
REPLY  [ok, revision, run, fence, lane, spec, run, ...], evicted, draining, unrenewed
VERBS  claim block cancel expire unblock skip wake
FLAGS  allow-oom
USES   limiting waiting ending claiming
The lanes come most urgent first, as the worker may serve them. Of every LOW_EVERY runs one is taken from one of the less
urgent lanes, which take turns at that, so that none starves. The nonce names this call: sent again after a lost reply, it gets the
same runs again. `revision` tells when the set of lanes has changed. ]]

local word = refuse_claimant(worker, epoch)
if word then return word end

local given, again = granted(worker, nonce)
if again then return given end

local lanes = {}
for lane in next_row do
  if not is_paused(lane) then lanes[#lanes + 1] = lane end
end

local taken, dropped = 0, 0

-- Take up to `wanted` runs from one lane, reading on past entries that stand for nothing.
local function drain(lane, wanted)
  while wanted > 0 and dropped < DROP_A_CALL do
    local entries = read_lane(lane, worker, wanted)
    for _, entry in ipairs(entries) do
      if take(lane, entry[1], entry[2][2], worker, nonce, given) then
        taken, wanted = taken + 1, wanted - 1
      else
        dropped = dropped + 1
      end
    end
    if #entries == 0 then return end
  end
end

local wanted = tonumber(count)
local turn = #lanes > 1 and tonumber(call('HGET', key_cursors(), 'turn') or 0) or 0
local low = #lanes > 1 and math.floor((turn + wanted) / LOW_EVERY) - math.floor(turn / LOW_EVERY) or 0
for pick = 1, low do
  for step = 0, #lanes - 2 do
    drain(lanes[2 + (math.floor(turn / LOW_EVERY) + pick + step) % (#lanes - 1)], 1)
    if taken == pick then break end
  end
  if taken < pick then break end
end
for _, lane in ipairs(lanes) do drain(lane, wanted - taken) end
if #lanes > 1 and taken > 0 then call('HSET', key_cursors(), 'turn', (turn + taken) % TURNS) end
grant(worker, nonce)
return given
