--[[ lanes: the lanes that are open to workers, and the revision of them.
KEYS   base
ARGV   now_ms
REPLY  [revision, lane, ...]
VERBS
FLAGS  no-writes
Those of queues that are paused are left out. ]]

local reply, paused = { lanes_revision() }, {}
for _, queue in ipairs(call('HKEYS', key_paused())) do paused[queue] = true end
for _, lane in ipairs(call('ZRANGE', key_lanes(), 0, paused['*'] and 0 or -1)) do
  if not (paused['*'] or paused[queue_of(lane)]) then reply[#reply + 1] = lane end
end
return reply
