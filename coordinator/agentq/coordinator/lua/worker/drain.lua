--[[ worker/drain: drain a worker: it claims nothing more, finishes or hands back what it holds, and leaves.
KEYS   base
ARGV   now_ms worker epoch detail order
REPLY  ok, not_found, evicted
VERBS
FLAGS  allow-oom
Its claims are refused from now on. `order` is `drain`, or `hurry`: hand back the held runs at once, also where a drain
would let them finish. A second call is `ok` and orders nothing twice. `epoch` is the worker's own, so that the order
cannot reach a successor of the same name; other callers leave it empty. ]]

local record = call('HMGET', key_worker(worker), 'state', 'epoch', 'hurried_epoch')
local state, current_epoch = record[1], record[2]
if epoch ~= '' and current_epoch ~= epoch then return 'evicted' end
if state ~= 'ready' and state ~= 'draining' then return 'not_found' end
-- An order to hurry holds for one epoch: a worker that was lost and came back has another one.
local already_ordered = record[3] == current_epoch or (order == 'drain' and state == 'draining')
if already_ordered then return 'ok' end
call('HSET', key_worker(worker), 'state', 'draining')
if state == 'ready' then append_worker_event('worker_draining', worker, detail) end
if order == 'hurry' then call('HSET', key_worker(worker), 'hurried_epoch', current_epoch) end
call('XADD', key_worker_inbox(worker), '*', 'order', order, 'run', '', 'fence', '', 'detail', detail)
return 'ok'
