--[[ queue/get_rates: count the runs submitted to each queue, and ended there, within a window.
KEYS   base
ARGV   now_ms window_ms most
REPLY  [time looked at in ms, queue, submitted, ended, ...]
VERBS
FLAGS  no-writes
Counted from the events, the newest `most` of them: where there were more, the time looked at is shorter. ]]

local time = call('TIME')
local clock = time[1] * 1000 + math.floor(time[2] / 1000)
local since = clock - window_ms
local events = call('XREVRANGE', key_events(), '+', string.format('%.0f', math.max(0, since)), 'COUNT', most)
if #events == tonumber(most) then since = tonumber(string.match(events[#events][1], '^%d+')) end

local ENDS, counts = { completed = true, failed = true, cancelled = true, skipped = true }, {}
for _, entry in ipairs(events) do
  local f = entry[2]
  local column = f[2] == 'submitted' and 1 or ENDS[f[2]] and 2
  for id in string.gmatch(column and f[4] or '', '%S+') do
    local lane = call('HGET', key_run(id), 'lane')
    if lane then
      local queue = queue_of(lane)
      counts[queue] = counts[queue] or { 0, 0 }
      counts[queue][column] = counts[queue][column] + 1
    end
  end
end

local reply = { math.max(1, clock - since) }
for queue, both in pairs(counts) do
  for _, value in ipairs({ queue, both[1], both[2] }) do reply[#reply + 1] = value end
end
return reply
