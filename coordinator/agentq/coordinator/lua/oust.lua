--[[ oust: end the lease of a worker whose place another process takes; what it holds is lost to it.
KEYS   base
ARGV   now_ms worker epoch
REPLY  ok, evicted
VERBS
FLAGS  allow-oom
What was held goes on when the other one registers, or a reaper looks: it is paid from the crash budget, so that a run that
brings down its worker again and again has an end. ]]

local record = call('HMGET', key_worker(worker), 'epoch', 'state')
if record[1] ~= epoch then return 'evicted' end
if record[2] == 'gone' or not call('ZSCORE', key_workers(), worker) then return 'ok' end
call('HSET', key_worker(worker), 'state', 'lost')
call('UNLINK', key_alive(worker))
call('ZADD', key_workers(), now, worker)
return 'ok'
