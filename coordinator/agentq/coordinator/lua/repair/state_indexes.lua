--[[ repair/state_indexes: compare some runs in the indexes of all queues with their records, and repair differences.
KEYS   base
ARGV   now_ms
ROWS   state
REPLY  number repaired
VERBS
FLAGS  allow-oom
`reconcile` goes through the indexes of one queue; this script repairs the rest: entries without a run, and runs whose
queue is not listed. If these indexes have fewer runs than some of the queues together, as when an earlier version had
no such indexes, they are rebuilt from those of the queues. ]]

local repaired = 0

-- Of all queues, a bounded number in one command.
local function rebuild_state_index(state)
  local names, before = {}, call('ZCARD', key_states(state))
  for place, queue in ipairs(call('SMEMBERS', key_queues())) do names[place] = key_index(queue, state) end
  each_chunk(names, 1000, function(...)
    call('ZUNIONSTORE', key_states(state), select('#', ...) + 1, key_states(state), ...)
  end)
  repaired = repaired + call('ZCARD', key_states(state)) - before
end

local sampled_queues, states = call('SRANDMEMBER', key_queues(), INSPECT_PER_CALL), {}
for state in next_row do
  states[#states + 1] = state
  local number = 0
  for _, queue in ipairs(sampled_queues) do number = number + call('ZCARD', key_index(queue, state)) end
  if call('ZCARD', key_states(state)) < number then rebuild_state_index(state) end
end

for _, state in ipairs(states) do
  for _, id in ipairs(call('ZRANDMEMBER', key_states(state), INSPECT_PER_CALL / 10)) do
    local run = load(id)
    if not run or run.state ~= state then
      call('ZREM', key_states(state), id)
      if run then call('ZADD', key_states(run.state), 0, id) end
      repaired = repaired + 1
    else
      local queue = queue_of(run.lane)
      repaired = repaired + call('SADD', key_queues(), queue) + call('ZADD', key_index(queue, state), 0, id)
    end
  end
end
return repaired
