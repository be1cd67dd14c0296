--[[ count: how many runs each queue has in each state.
KEYS   base
ARGV   now_ms
ROWS   state
REPLY  [queue, state, number, ...], zeros left out
VERBS
FLAGS  no-writes ]]

local reply, states = {}, {}
for state in next_row do states[#states + 1] = state end
for _, queue in ipairs(call('SMEMBERS', key_queues())) do
  for _, state in ipairs(states) do
    local number = call('ZCARD', key_index(queue, state))
    if number > 0 then
      for _, value in ipairs({ queue, state, number }) do reply[#reply + 1] = value end
    end
  end
end
return reply
