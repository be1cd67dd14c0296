--[[ worker/register: register a worker, or resume its registration.
KEYS   base
ARGV   now_ms worker epoch operation lease_ms random identity
REPLY  [ok, epoch, resumed, revision, run, fence, run, ...], duplicate, releasing_runs
VERBS  lose unblock skip cancel wake
FLAGS  allow-oom
USES   plans limits waits session_turns end_run merge_queue remove_worker
`epoch` is the one the worker has, or 0. Within its lease, or later if it was not declared lost, a worker that comes
back keeps its epoch and its runs, which the reply lists. Otherwise it gets a new epoch, and the runs held in the old
epoch are lost first; `releasing_runs` means that there are more of them than one call may release: call again.
`duplicate` means that another process with this id is alive. `operation` names the call, so that it can be repeated. ]]

local record = call('HMGET', key_worker(worker), 'epoch', 'state', 'operation')
local lease = call('GET', key_worker_lease(worker))
local alive = lease and tonumber(lease) > now
local same = record[1] and (record[1] == epoch or record[3] == operation)
local resumed = same and (record[2] == 'ready' or record[2] == 'draining')
if alive and not same then return 'duplicate' end

if not resumed then
  local function dismiss(id, run) lose_attempt(id, run, random, 'worker was started again') end
  local before = record[1] or call('EXISTS', key_worker_runs(worker)) == 1
  if before and not remove_worker(worker, 'gone', dismiss) then return 'releasing_runs' end
  if record[2] == 'ready' or record[2] == 'draining' then append_worker_event('worker_lost', worker, 'it was started again') end
  epoch = string.format('%.0f', math.max(now, tonumber(record[1] or 0) + 1))
  call('HSET', key_worker(worker), 'epoch', epoch, 'state', 'ready', 'operation', operation, 'registered_at_ms', now)
  call('HDEL', key_worker(worker), 'missing_at_ms', 'last_claim', 'ended_at_ms', 'ended_why', 'runs_ended')
  call('ZREM', key_departed_workers(), worker)
  append_worker_event('worker_registered', worker)
  redis.pcall('XGROUP', 'CREATE', key_worker_inbox(worker), 'workers', '0', 'MKSTREAM')
else
  epoch = record[1]
end
call('HSET', key_worker(worker), 'identity', identity, 'seen_at_ms', now)
call('HDEL', key_worker(worker), 'missing_at_ms')
call('PERSIST', key_worker(worker))
call('SET', key_worker_lease(worker), now + lease_ms, 'PX', lease_ms)
call('ZADD', key_workers(), now + lease_ms, worker)

local reply = { 'ok', epoch, resumed and 1 or 0, lanes_revision() }
local holds = resumed and call('HGETALL', key_worker_runs(worker)) or {}
for at = 1, #holds, 2 do
  reply[#reply + 1] = holds[at]
  reply[#reply + 1] = string.match(holds[at + 1], '^%S+')
end
return reply
