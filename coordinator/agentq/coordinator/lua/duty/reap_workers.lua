--[[ duty/reap_workers: find workers whose lease has expired, and requeue the runs of those that do not return.
KEYS   base
ARGV   now_ms server gap_ms lease_ms grace_ms random
REPLY  [marked, doubtful, runs, left, next_at_ms or 0, worker, ...]
VERBS  lose unblock skip cancel wake
FLAGS  allow-oom
USES   plans limits waits session_turns end_run merge_queue remove_worker
First a mark, later the sweep: a worker is lost if its lease is missing twice, `grace_ms` apart, and if this server has
been watched without a gap for a full lease: a worker is not judged by the time while the server was away, replaced or
unreachable to every reaper, or while its clock was set. Every process that asks for the duties (`keep`) watches, so
another keeper is no gap. The runs that an evicted worker still holds are requeued at once. A lease from before a clock
was set back would last for as long as that: it is reset. `server` names the server process, for tests; if empty, the
server is asked. `doubtful` workers are missing and not judged yet; `left` is 1 if there is more to do at once;
`next_at_ms` is when the next reap can matter. The workers declared lost are named at the end. ]]

local LEASE_ENDED = 'it was not heard until its lease had ended'

local function server_process()
  if server ~= '' then return server end
  local info = redis.pcall('INFO', 'server')
  return type(info) == 'string' and string.match(info, 'run_id:(%w+)') or type(info) == 'table' and info.ok or 'unknown'
end

local function watched_since()
  local process = server_process()
  local f = call('HMGET', key_reaper_watch(), 'server', 'since_ms', 'tick_ms')
  local since = tonumber(f[2] or nil)
  if not since or f[1] ~= process or math.abs(now - tonumber(f[3] or 0)) > tonumber(gap_ms) then since = now end
  call('HSET', key_reaper_watch(), 'server', process, 'since_ms', since, 'tick_ms', now)
  return since
end

-- Reset the leases of workers last seen in the future: another clock has set them.
local function reset_future_leases()
  local latest = '(' .. string.format('%.0f', now + lease_ms)
  local far = call('ZRANGE', key_workers(), '+inf', latest, 'BYSCORE', 'REV', 'LIMIT', 0, INSPECT_PER_CALL, 'WITHSCORES')
  for at = 1, #far, 2 do
    local worker, seen = far[at], tonumber(call('HGET', key_worker(far[at]), 'seen_at_ms') or nil)
    if seen and seen > now then
      local length = math.max(far[at + 1] - seen, 1)
      call('HSET', key_worker(worker), 'seen_at_ms', stamp)
      call('SET', key_worker_lease(worker), now + length, 'PX', length)
      call('ZADD', key_workers(), now + length, worker)
    end
  end
end

reset_future_leases()
local since = watched_since()
local judge_at = since + lease_ms
local marked, doubtful, runs, left, next_at, names = 0, 0, 0, 0, nil, {}

local function wait_until(at) next_at = math.min(next_at or at, at) end

local function remove_lost_worker(worker, swept)
  local function dismiss(id, run)
    runs = runs + 1
    lose_attempt(id, run, random, 'worker ' .. worker .. ' was lost')
  end
  if not swept then
    call('HSET', key_worker(worker), 'state', 'lost', 'ended_why', LEASE_ENDED)
    append_worker_event('worker_lost', worker, LEASE_ENDED)
  end
  if not remove_worker(worker, 'lost', dismiss) then left = 1 end
  names[#names + 1] = worker
end

-- All that are missing are marked at once, since each waits a grace from its mark on; few are swept in one call.
for _, worker in ipairs(call('ZRANGE', key_workers(), '-inf', now, 'BYSCORE', 'LIMIT', 0, INSPECT_PER_CALL)) do
  local f = call('HMGET', key_worker(worker), 'missing_at_ms', 'state')
  local missing, swept = tonumber(f[1] or nil), f[2] == 'lost'
  if not swept and (not missing or missing > now) then
    marked, doubtful = marked + 1, doubtful + 1
    call('HSET', key_worker(worker), 'missing_at_ms', now)
    wait_until(math.max(now + grace_ms, judge_at))
  elseif swept or (now >= missing + grace_ms and now >= judge_at) then
    if runs < SWEEP_PER_CALL and #names < WORKERS_PER_CALL then remove_lost_worker(worker, swept) else left = 1 end
  else
    doubtful = doubtful + 1
    wait_until(math.max(missing + grace_ms, judge_at))
  end
end

local first = call('ZRANGE', key_workers(), '(' .. string.format('%.0f', now), '+inf', 'BYSCORE', 'LIMIT', 0, 1,
  'WITHSCORES')
if first[2] then wait_until(tonumber(first[2])) end
return { marked, doubtful, runs, left, string.format('%.0f', next_at or 0), unpack(names) }
