--[[ drain: a worker is to take no more runs, finish or hand back what it holds, and leave.
KEYS   base
ARGV   now_ms worker epoch detail
REPLY  ok, not_found, evicted
VERBS
FLAGS  allow-oom
Its claims are refused from now on. A second drain is `ok` and orders nothing twice. `epoch` is the worker's own, so that
it cannot mean a successor of the same name; anyone else leaves it empty. ]]

local record = call('HMGET', key_worker(worker), 'state', 'epoch')
local state = record[1]
if epoch ~= '' and record[2] ~= epoch then return 'evicted' end
if state ~= 'ready' and state ~= 'draining' then return 'not_found' end
if state == 'ready' then
  call('HSET', key_worker(worker), 'state', 'draining')
  call('XADD', key_inbox(worker), '*', 'order', 'drain', 'run', '', 'fence', '', 'detail', detail)
end
return 'ok'
