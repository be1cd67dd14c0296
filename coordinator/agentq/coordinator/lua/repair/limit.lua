--[[ repair/limit: compare some holders and waiters of a limit with the runs, and repair differences.
KEYS   base
ARGV   now_ms limit
REPLY  number of entries repaired
VERBS  unblock
FLAGS  allow-oom
USES   plans limits waits session_turns end_run merge_queue
The scripts keep them together; this is for what happens to Redis itself. ]]

local function next_batch(name, key)
  local field = 'audit:' .. name .. ':' .. limit
  local from = tonumber(call('HGET', key_cursors(), field) or 0)
  local ids = call('ZRANGE', key, from, from + INSPECT_PER_CALL - 1)
  if #ids < INSPECT_PER_CALL then
    call('HDEL', key_cursors(), field)
  else
    call('HSET', key_cursors(), field, from + #ids)
  end
  return ids
end

local repaired = 0
for _, id in ipairs(next_batch('holders', key_limit_holders(limit))) do
  local run = load(id)
  if not run or not (is_held(run) or run.reserved) then
    call('ZREM', key_limit_holders(limit), id)
    repaired = repaired + 1
  end
end
for _, id in ipairs(next_batch('waiters', key_limit_waiters(limit))) do
  local run = load(id)
  if not run or run.state ~= 'blocked' or awaited_limit(run) ~= limit then
    call('ZREM', key_limit_waiters(limit), id)
    repaired = repaired + 1
  end
end
freed_limits[1] = limit
return repaired
