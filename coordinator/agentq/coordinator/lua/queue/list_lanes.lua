--[[ queue/list_lanes: list all lanes, with their revision.
KEYS   base
ARGV   now_ms
REPLY  [revision, number of lanes open to workers, lane, ...]
VERBS
FLAGS  no-writes
Those open to workers come first; the others belong to queues that are paused. ]]

local open_lanes, paused_lanes = {}, {}
for _, lane in ipairs(call('ZRANGE', key_lanes(), 0, -1)) do
  local list = is_paused(lane) and paused_lanes or open_lanes
  list[#list + 1] = lane
end

local reply = { lanes_revision(), #open_lanes }
for _, lane in ipairs(open_lanes) do reply[#reply + 1] = lane end
for _, lane in ipairs(paused_lanes) do reply[#reply + 1] = lane end
return reply
