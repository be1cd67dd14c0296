--[[ audit: compare a stretch of those who have room under a limit, and of its line, with the runs, and mend what does not
fit.
KEYS   base
ARGV   now_ms limit
REPLY  number of entries mended
VERBS  unblock
FLAGS  allow-oom
USES   planning limiting waiting turns ending merging
The scripts keep them together; this is for what happens to Redis itself. ]]

local function stretch(name, key)
  local field = 'audit:' .. name .. ':' .. limit
  local from = tonumber(call('HGET', key_cursors(), field) or 0)
  local ids = call('ZRANGE', key, from, from + INSPECT_A_CALL - 1)
  if #ids < INSPECT_A_CALL then
    call('HDEL', key_cursors(), field)
  else
    call('HSET', key_cursors(), field, from + #ids)
  end
  return ids
end

local mended = 0
for _, id in ipairs(stretch('holders', key_holders(limit))) do
  local run = load(id)
  if not run or not (is_held(run) or run.reserved) then
    call('ZREM', key_holders(limit), id)
    mended = mended + 1
  end
end
for _, id in ipairs(stretch('waiters', key_waiters(limit))) do
  local run = load(id)
  if not run or run.state ~= 'blocked' or line_of(run) ~= limit then
    call('ZREM', key_waiters(limit), id)
    mended = mended + 1
  end
end
freed[1] = limit
return mended
