--[[ deliver: put an RQ job straight into its lane, for producers that know of it.
KEYS   base
ARGV   now_ms id lane job head tail timed
REPLY  ok, exists ID, barred QUEUE, many_queues NUMBER, many_of_token NUMBER KIND
VERBS  submit unblock skip cancel wake
FLAGS
USES   planning limiting waiting turns ending merging birth rq
From then on what waits in RQ's list of that queue is taken into the lane at once, so that it keeps its place in the order. ]]

local queue = queue_of(lane)
if is_barred(queue) then return 'barred ' .. queue end
local excess = refuse_queue(queue)
if excess then return excess end
call('SADD', key_rq_fed(), queue)
return take_in(id, lane, job, head, tail, timed)
