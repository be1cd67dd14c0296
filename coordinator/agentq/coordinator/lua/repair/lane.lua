--[[ repair/lane: clean up one lane: its consumers, its first entries, and the lane itself when it is unused.
KEYS   base
ARGV   now_ms lane idle_ms
REPLY  [entries given back, consumers removed, entries trimmed, 1 if the lane was closed]
VERBS
FLAGS  allow-oom
USES   plans limits waits session_turns end_run merge_queue remove_worker
A consumer is deleted if no registered worker has its name. A lane is deleted if it has been empty for `idle_ms`; the
next submit opens it again. The head is trimmed to the oldest entry that is undelivered, or delivered and of a waiting
run. ]]

local key = key_lane(lane)
if not call('ZSCORE', key_lanes(), lane) then return { 0, 0, 0, 0 } end
redis.pcall('XGROUP', 'CREATE', key, 'workers', '0', 'MKSTREAM')

local function to_table(flat)
  local fields = {}
  for at = 1, #flat, 2 do fields[flat[at]] = flat[at + 1] end
  return fields
end

local returned_entries, removed, has_recent_consumer = 0, 0, false
for _, flat in ipairs(call('XINFO', 'CONSUMERS', key, 'workers')) do
  local consumer = to_table(flat)
  if not call('ZSCORE', key_workers(), consumer.name) and call('EXISTS', key_worker_lease(consumer.name)) == 0 then
    if consumer.idle >= tonumber(idle_ms) or call('EXISTS', key_worker(consumer.name)) == 1 then
      local count = clear_consumer(lane, consumer.name, SWEEP_PER_CALL)
      returned_entries = returned_entries + count
      if count < SWEEP_PER_CALL then removed = removed + 1 end
    else
      has_recent_consumer = true
    end
  end
end

local function is_live_entry(entry)
  local body = call('XRANGE', key, entry, entry)[1]
  local run = body and load(body[2][2])
  return run and is_current_entry(run, lane, entry) and (run.state == 'pending' or is_held(run))
end

for _, item in ipairs(call('XPENDING', key, 'workers', '-', '+', LANE_HEAD_PER_CALL)) do
  if not is_live_entry(item[1]) then drop_entry(lane, item[1]) end
end
delete_entries(lane, acked_entries[lane] or {})
acked_entries[lane] = nil

local group = to_table(call('XINFO', 'GROUPS', key)[1])
local oldest = call('XPENDING', key, 'workers')[2]
local trimmed = call('XTRIM', key, 'MINID', '=', oldest or group['last-delivered-id'])

local last = string.match(to_table(call('XINFO', 'STREAM', key))['last-generated-id'], '^%d+')
local opened_at = tonumber(call('ZSCORE', key_lanes(), lane))
local idle_since = math.max(tonumber(last), opened_at)
if call('EXISTS', key_fair_queue(lane)) == 1 then
  lanes_to_refill[lane] = true
elseif call('XLEN', key) == 0 and not has_recent_consumer and now - idle_since >= tonumber(idle_ms) then
  call('DEL', key)
  call('ZREM', key_lanes(), lane)
  call('HINCRBY', key_cursors(), 'lanes_revision', 1)
  return { returned_entries, removed, trimmed, 1 }
end
return { returned_entries, removed, trimmed, 0 }
