--[[ worker/evict: end the lease of a worker whose process is known to be dead, or which is replaced; requeue its runs.
KEYS   base
ARGV   now_ms worker epoch random why
REPLY  ok, releasing_runs, evicted
VERBS  lose unblock skip cancel wake
FLAGS  allow-oom
USES   plans limits waits session_turns end_run merge_queue remove_worker
Its runs are lost and spend the crash budget, so that a run that kills its workers again and again ends.
`releasing_runs` means that there is more to requeue than one call may do: call again. `evicted` means that the worker
has another epoch by now, and lives. ]]

local record = call('HMGET', key_worker(worker), 'epoch', 'state')
if record[1] ~= epoch then return 'evicted' end
if record[2] == 'gone' or not call('ZSCORE', key_workers(), worker) then return 'ok' end
if record[2] ~= 'lost' then append_worker_event('worker_lost', worker, why) end
call('HSET', key_worker(worker), 'state', 'lost', 'ended_why', why)
call('UNLINK', key_worker_lease(worker))
call('ZADD', key_workers(), now, worker)
local function lose_held(id, run) lose_attempt(id, run, random, why) end
return remove_worker(worker, 'lost', lose_held) and 'ok' or 'releasing_runs'
