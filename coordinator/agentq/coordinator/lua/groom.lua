--[[ groom: keep one lane in order: its consumers, its head, and itself when nobody needs it.
KEYS   base
ARGV   now_ms lane idle_ms
REPLY  [entries given back, consumers removed, entries trimmed, 1 if the lane was closed]
VERBS
FLAGS  allow-oom
USES   planning limiting waiting turns ending merging retiring
A consumer goes if no registered worker has its name. A lane goes if it has been empty for `idle_ms`; the next submit
opens it again. The head is trimmed to the oldest entry that is undelivered, or that is in somebody's hands and stands
for a run. ]]

local key = key_lane(lane)
if not call('ZSCORE', key_lanes(), lane) then return { 0, 0, 0, 0 } end
redis.pcall('XGROUP', 'CREATE', key, 'workers', '0', 'MKSTREAM')

local function pairs_of(flat)
  local fields = {}
  for at = 1, #flat, 2 do fields[flat[at]] = flat[at + 1] end
  return fields
end

local given_back, removed, fresh = 0, 0, false
for _, flat in ipairs(call('XINFO', 'CONSUMERS', key, 'workers')) do
  local consumer = pairs_of(flat)
  if not call('ZSCORE', key_workers(), consumer.name) and call('EXISTS', key_alive(consumer.name)) == 0 then
    if consumer.idle >= tonumber(idle_ms) or call('EXISTS', key_worker(consumer.name)) == 1 then
      local count = clear_consumer(lane, consumer.name, SWEEP_A_CALL)
      given_back = given_back + count
      if count < SWEEP_A_CALL then removed = removed + 1 end
    else
      fresh = true
    end
  end
end

local function stands_for_a_run(entry)
  local body = call('XRANGE', key, entry, entry)[1]
  local run = body and load(body[2][2])
  return run and is_home(run, lane, entry) and (run.state == 'pending' or is_held(run))
end

for _, item in ipairs(call('XPENDING', key, 'workers', '-', '+', HEAD_A_CALL)) do
  if not stands_for_a_run(item[1]) then drop(lane, item[1]) end
end
erase(lane, acked[lane] or {})
acked[lane] = nil

local group = pairs_of(call('XINFO', 'GROUPS', key)[1])
local oldest = call('XPENDING', key, 'workers')[2]
local trimmed = call('XTRIM', key, 'MINID', '=', oldest or group['last-delivered-id'])

local last = string.match(pairs_of(call('XINFO', 'STREAM', key))['last-generated-id'], '^%d+')
local opened_at = tonumber(call('ZSCORE', key_lanes(), lane))
local idle_since = math.max(tonumber(last), opened_at)
if call('EXISTS', key_line(lane)) == 1 then
  uneven[lane] = true
elseif call('XLEN', key) == 0 and not fresh and now - idle_since >= tonumber(idle_ms) then
  call('DEL', key)
  call('ZREM', key_lanes(), lane)
  call('HINCRBY', key_cursors(), 'lanes', 1)
  return { given_back, removed, trimmed, 1 }
end
return { given_back, removed, trimmed, 0 }
