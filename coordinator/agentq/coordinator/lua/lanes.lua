--[[ lanes: all lanes, and the revision of them.
KEYS   base
ARGV   now_ms
REPLY  [revision, number of lanes open to workers, lane, ...]
VERBS
FLAGS  no-writes
Those open to workers come first; the others belong to queues that are paused. ]]

local running, resting = {}, {}
for _, lane in ipairs(call('ZRANGE', key_lanes(), 0, -1)) do
  local list = is_paused(lane) and resting or running
  list[#list + 1] = lane
end

local reply = { lanes_revision(), #running }
for _, lane in ipairs(running) do reply[#reply + 1] = lane end
for _, lane in ipairs(resting) do reply[#reply + 1] = lane end
return reply
