--[[ oust: end the lease of a worker whose process is known to be dead, or whose place another takes; requeue its runs.
KEYS   base
ARGV   now_ms worker epoch dice why
REPLY  ok, retiring, evicted
VERBS  lose unblock skip cancel wake
FLAGS  allow-oom
USES   planning limiting waiting turns ending merging retiring
What it held is lost: that is paid from the crash budget, so that a run that kills its workers again and again has an end.
`retiring` means that there is more to requeue than one call may do: call again. `evicted` means that the worker has
another epoch by now, and lives. ]]

local record = call('HMGET', key_worker(worker), 'epoch', 'state')
if record[1] ~= epoch then return 'evicted' end
if record[2] == 'gone' or not call('ZSCORE', key_workers(), worker) then return 'ok' end
if record[2] ~= 'lost' then tell_of_worker('worker_lost', worker, why) end
call('HSET', key_worker(worker), 'state', 'lost', 'ended_why', why)
call('UNLINK', key_alive(worker))
call('ZADD', key_workers(), now, worker)
local function dismiss(id, run) lose(id, run, dice, why) end
return retire(worker, 'lost', dismiss) and 'ok' or 'retiring'
