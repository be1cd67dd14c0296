--[[ drain: a worker is to take no more runs, finish or hand back what it holds, and leave.
KEYS   base
ARGV   now_ms worker epoch detail order
REPLY  ok, not_found, evicted
VERBS
FLAGS  allow-oom
Its claims are refused from now on. `order` is `drain`, or `hurry`: hand back at once what is held, also where a drain
lets it go on. A second one is `ok` and orders nothing twice. `epoch` is the worker's own, so that it cannot mean a
successor of the same name; anyone else leaves it empty. ]]

local record = call('HMGET', key_worker(worker), 'state', 'epoch', 'hurried')
local state, life = record[1], record[2]
if epoch ~= '' and life ~= epoch then return 'evicted' end
if state ~= 'ready' and state ~= 'draining' then return 'not_found' end
-- Who was told to hurry was so in this life: a worker that was lost and came back has another epoch.
local told = record[3] == life or (order == 'drain' and state == 'draining')
if told then return 'ok' end
call('HSET', key_worker(worker), 'state', 'draining')
if state == 'ready' then tell_of_worker('worker_draining', worker, detail) end
if order == 'hurry' then call('HSET', key_worker(worker), 'hurried', life) end
call('XADD', key_inbox(worker), '*', 'order', order, 'run', '', 'fence', '', 'detail', detail)
return 'ok'
