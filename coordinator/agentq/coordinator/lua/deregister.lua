--[[ deregister: a worker leaves; what it still holds is released.
KEYS   base
ARGV   now_ms worker epoch
REPLY  ok, retiring, evicted
VERBS  release unblock skip cancel wake
FLAGS  allow-oom
USES   planning limiting waiting turns ending merging retiring
`retiring` means that there is more to hand back than one call may do: call again. ]]

local record = call('HMGET', key_worker(worker), 'epoch', 'state')
if record[1] ~= epoch or record[2] == 'lost' then return 'evicted' end
if record[2] == 'gone' then return 'ok' end
call('HSET', key_worker(worker), 'state', 'draining')
local function hand_back(id, run) release(id, run, 'its worker left') end
if not retire(worker, 'gone', hand_back) then return 'retiring' end
tell_of_worker('worker_left', worker)
return 'ok'
