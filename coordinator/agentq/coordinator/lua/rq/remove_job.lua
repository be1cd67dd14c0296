--[[ rq/remove_job: remove a job from an RQ queue, wherever it waits.
KEYS   base
ARGV   now_ms queue source job
REPLY  number of times that it waited there
VERBS  submit unblock skip cancel wake
FLAGS  allow-oom
USES   plans limits waits session_turns end_run merge_queue rq_jobs ]]

local removed_count = call('LREM', source, 1, job)
if removed_count == 0 then removed_count = call('LREM', key_rq_arrived(queue), 1, job) end
local holder = dedupe_holder('rq:' .. job)
if not holder then return removed_count end
local follower = call('HGET', key_run(holder), 'follower')
for _, id in ipairs({ follower or holder, holder }) do
  if call('HEXISTS', key_rq_jobs(queue), id) == 1 and cancel_job_run(id, 'removed from the queue') then removed_count = removed_count + 1 end
end
return removed_count
