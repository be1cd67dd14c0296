--[[ run/count: count the runs of these queues in these states, and return the oldest of each.
KEYS   base
ARGV   now_ms states
ROWS   queue
REPLY  [queue, state, number, run, ...], zeros left out
VERBS
FLAGS  no-writes
`states` are separated by spaces. ]]

local reply = {}
for queue in next_row do
  for state in string.gmatch(states, '%S+') do
    local index = key_index(queue, state)
    local number = call('ZCARD', index)
    if number > 0 then
      for _, value in ipairs({ queue, state, number, call('ZRANGE', index, 0, 0)[1] }) do reply[#reply + 1] = value end
    end
  end
end
return reply
