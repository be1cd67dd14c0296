--[[ merge/enter_queue: enter the merge queue of a branch, and return who stands before the attempt.
KEYS   base
ARGV   now_ms id fence line commit ref
REPLY  [ok, how many stand before it, holder, run, commit, ref, ...], not_found, fenced, stopping, wrong_state STATE
VERBS
FLAGS  allow-oom
USES   conversation merge_queue
A repeated call changes only the commit that the attempt brings. A run is in one queue: it leaves another one. The first
attempt gets the next ones and their commits. `stopping` means that a stop was ordered: the attempt must not begin. ]]

local run, word = load_for_attempt(id, fence)
if not run then return word end
if run.stop_at_ms then
  if run.merge_queue then leave_merge_queue(id, run) end
  return 'stopping'
end
if run.merge_queue and run.merge_queue ~= line then leave_merge_queue(id, run) end
local key = key_merge_queue(line)
if not call('ZSCORE', key, id) then call('ZADD', key, call('HINCRBY', key_cursors(), 'merge_number', 1), id) end
call('PEXPIRE', key, KEEP_MS)
call('HSET', run.key, 'merge_queue', line, 'merge_candidate', commit .. ' ' .. ref, 'extended', 1)

local holder = first_in_merge_queue(line)
local reply = { 'ok', call('ZRANK', key, id), holder }
if holder ~= id then return reply end
for _, other in ipairs(call('ZRANGE', key, 1, MERGE_QUEUE_SHOWN)) do
  local candidate = call('HGET', key_run(other), 'merge_candidate')
  reply[#reply + 1] = other
  reply[#reply + 1], reply[#reply + 2] = string.match(candidate or '', '^(%S*) ?(.*)$')
end
return reply
