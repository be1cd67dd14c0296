--[[ rq/push_job: put an RQ job straight into its lane, for producers that know it.
KEYS   base
ARGV   now_ms id lane job head tail timeout_parts
REPLY  ok, exists ID, intake_closed QUEUE, too_many_queues NUMBER, too_many_for_token NUMBER KIND
VERBS  submit unblock skip cancel wake
FLAGS
USES   plans limits waits session_turns end_run merge_queue create_run rq_jobs
From then on what waits in RQ's list of that queue is taken into the lane at once, so that it keeps its place in the
order. ]]

local queue = queue_of(lane)
if is_intake_closed(queue) then return 'intake_closed ' .. queue end
local excess = refuse_queue(queue)
if excess then return excess end
call('SADD', key_rq_direct_queues(), queue)
return submit_job(id, lane, job, head, tail, timeout_parts)
