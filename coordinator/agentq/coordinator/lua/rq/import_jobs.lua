--[[ rq/import_jobs: move jobs from the list of an RQ queue into its lane, while fewer than `room` runs wait in the queue.
KEYS   base
ARGV   now_ms lane source head tail timeout_parts room
ROWS   id
REPLY  [taken, whether jobs are left for which there was no room]
VERBS  submit unblock skip cancel wake
FLAGS
USES   plans limits waits session_turns end_run merge_queue create_run rq_jobs
Jobs that arrived on the way come first; see `rq:‹queue›:arrived`. `head`, `tail` and `timeout_parts` are pieces of
specs (rq_jobs.lua). A queue whose producers push into the lane has no backlog in RQ's list, so all of the list is
taken. Nothing is taken while RQ is suspended, while the queue is paused or drained, or if it exceeds the number of
queues. ]]

local queue = queue_of(lane)
local arrived = key_rq_arrived(queue)
if call('EXISTS', 'rq:suspended') == 1 or is_paused(lane) or is_intake_closed(queue) or refuse_queue(queue) then
  return { 0, 1 }
end
local left = tonumber(room) - call('ZCARD', key_index(queue, 'pending'))
if call('SISMEMBER', key_rq_direct_queues(), queue) == 1 then left = LIST_PER_CALL end
local taken = 0
for id in next_row do
  local job = left > 0 and (call('LPOP', arrived) or call('LPOP', source))
  if not job then break end
  left = left - 1
  if submit_job(id, lane, job, head, tail, timeout_parts) == 'ok' then taken = taken + 1 end
end
return { taken, call('EXISTS', source, arrived) > 0 and 1 or 0 }
