--[[ drain: a worker is to take no more runs, finish or hand back what it holds, and leave.
KEYS   base
ARGV   now_ms worker detail
REPLY  ok, not_found
VERBS
FLAGS  allow-oom
Its claims are refused from now on. A second drain is `ok` and orders nothing twice. ]]

local state = call('HGET', key_worker(worker), 'state')
if state ~= 'ready' and state ~= 'draining' then return 'not_found' end
if state == 'ready' then
  call('HSET', key_worker(worker), 'state', 'draining')
  call('XADD', key_inbox(worker), '*', 'order', 'drain', 'run', '', 'fence', '', 'detail', detail)
end
return 'ok'
