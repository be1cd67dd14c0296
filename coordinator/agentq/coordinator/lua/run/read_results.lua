--[[ run/read_results: return the records of other runs that a run refers to.
KEYS   base
ARGV   now_ms queues
ROWS   id
REPLY  [field, value, ...] or queue_not_readable QUEUE, per run
VERBS
FLAGS  no-writes
`queues` are those that the run which names them may read; empty for all. That was checked at its submit, but a run may
have been moved since, and an earlier version may have checked less. A run that is not there has no fields. ]]

local records = {}
for id in next_row do
  local lane = call('HGET', key_run(id), 'lane')
  local queue = lane and queue_of(lane)
  if queue and queues ~= '' and not string.find(' ' .. queues .. ' ', ' ' .. queue .. ' ', 1, true) then
    records[#records + 1] = 'queue_not_readable ' .. queue
  else
    records[#records + 1] = call('HGETALL', key_run(id))
  end
end
return records
