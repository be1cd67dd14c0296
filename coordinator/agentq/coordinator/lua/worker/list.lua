--[[ worker/list: list some registered workers, or departed ones, with their fields and runs.
KEYS   base
ARGV   now_ms set cursor count
REPLY  [cursor, worker, lease_until_ms, fields as JSON, runs with blanks between, ...]
VERBS
FLAGS  no-writes
`set` is `here` or `departed`. From the cursor `0` until it is `0` again; a worker that is registered all the while is
listed, perhaps twice. A worker that left has the time of that in place of its lease, and is listed only while its
record is kept. ]]

local step = call('ZSCAN', set == 'here' and key_workers() or key_departed_workers(), cursor, 'COUNT', count)
local reply = { step[1] }
for at = 1, #step[2], 2 do
  local worker = step[2][at]
  local flat, fields = call('HGETALL', key_worker(worker)), {}
  for place = 1, #flat, 2 do fields[flat[place]] = flat[place + 1] end
  if fields.identity then
    local runs = table.concat(call('HKEYS', key_worker_runs(worker)), ' ')
    for _, value in ipairs({ worker, step[2][at + 1], json(fields), runs }) do reply[#reply + 1] = value end
  end
end
return reply
