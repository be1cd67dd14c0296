--[[ schedule/record_fault: record why the next step of a schedule cannot be computed; it is tried again later.
KEYS   base
ARGV   now_ms name revision why
REPLY  ok, not_found, stale
VERBS
FLAGS  allow-oom ]]

local key, retry_at = key_schedule(name), now + SCHEDULE_FAULT_MS
local found = redis.pcall('HGET', key, 'revision')
if not found and call('EXISTS', key) == 0 then
  call('ZREM', key_schedules(), name)
  return 'not_found'
end
if type(found) ~= 'table' then
  if (found or '') ~= revision then return 'stale' end
  call('HSET', key, 'fault', why, 'fault_at_ms', stamp)
end
call('ZADD', key_schedules(), 'XX', retry_at, name)
return 'ok'
