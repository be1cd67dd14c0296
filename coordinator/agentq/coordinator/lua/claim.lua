--[[ claim: give a worker as many pending runs as it asks for, in order of the lanes, or fewer if there are no more.
KEYS   base
ARGV   now_ms worker epoch nonce count
ROWS   lane
REPLY  [ok, revision, run, fence, lane, spec, run, ...], evicted, draining, unrenewed
VERBS  claim expire unblock skip
FLAGS  allow-oom
USES   claiming
The lanes come most urgent first, as the worker may serve them. Of every LOW_EVERY runs one is taken from the least
urgent lane that has any, so that none starves. The nonce names this call: sent again after a lost reply, it gets the
same runs again. `revision` tells when the set of lanes has changed. ]]

local word = refuse_claimant(worker, epoch)
if word then return word end

local given, again = granted(worker, nonce)
if again then return given end

local lanes = {}
for lane in next_row do lanes[#lanes + 1] = lane end

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
for place = #lanes, 1, -1 do drain(lanes[place], low - taken) end
for _, lane in ipairs(lanes) do drain(lane, wanted - taken) end
if #lanes > 1 and taken > 0 then call('HSET', key_cursors(), 'turn', (turn + taken) % LOW_EVERY) end
grant(worker, nonce)
return given
