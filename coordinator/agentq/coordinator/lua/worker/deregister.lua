--[[ worker/deregister: deregister a worker; what it still holds is released.
KEYS   base
ARGV   now_ms worker epoch
REPLY  ok, releasing_runs, evicted
VERBS  release unblock skip cancel wake
FLAGS  allow-oom
USES   plans limits waits session_turns end_run merge_queue remove_worker
`releasing_runs` means that there is more to hand back than one call may do: call again. ]]

local record = call('HMGET', key_worker(worker), 'epoch', 'state')
if record[1] ~= epoch or record[2] == 'lost' then return 'evicted' end
if record[2] == 'gone' then return 'ok' end
call('HSET', key_worker(worker), 'state', 'draining')
local function release_held(id, run) release_run(id, run, 'its worker left') end
if not remove_worker(worker, 'gone', release_held) then return 'releasing_runs' end
append_worker_event('worker_left', worker)
return 'ok'
