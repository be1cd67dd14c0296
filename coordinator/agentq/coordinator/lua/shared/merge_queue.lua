--[[ Merge queues: the runs that want to move a branch, in the order in which they came. Every run in one is held: it
leaves the queue in the script by which it leaves its worker. ]]

-- Queues whose first run has left.
local merge_queues_to_notify = {}

local function leave_merge_queue(id, run)
  local line = run.merge_queue
  if call('ZRANGE', key_merge_queue(line), 0, 0)[1] == id then merge_queues_to_notify[line] = true end
  call('ZREM', key_merge_queue(line), id)
  call('HDEL', run.key, 'merge_queue', 'merge_candidate')
  run.merge_queue = nil
end

-- The first held run in a merge queue. Entries of other runs, left only by a change of keys by hand, are removed.
local function first_in_merge_queue(line)
  while true do
    local id = call('ZRANGE', key_merge_queue(line), 0, 0)[1]
    local run = id and load(id)
    if not id or (run and is_held(run) and run.merge_queue == line) then return id, run end
    call('ZREM', key_merge_queue(line), id)
  end
end

flush_hooks[#flush_hooks + 1] = function()
  for line in pairs(merge_queues_to_notify) do
    local id, run = first_in_merge_queue(line)
    if id then
      call('XADD', key_worker_inbox(run.worker), '*', 'order', 'merge', 'run', id, 'fence', run.fence, 'detail', line)
    end
  end
  merge_queues_to_notify = {}
end
