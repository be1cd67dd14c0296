--[[ rq/return_jobs: move jobs that wait in a lane back to RQ's list, or delete them, last first.
KEYS   base
ARGV   now_ms queue lane source before count delete why
REPLY  [moved, entry to go on before, or nothing at the end]
VERBS  submit unblock skip cancel wake
FLAGS  allow-oom
USES   plans limits waits session_turns end_run merge_queue rq_jobs
They go to the front of the list, before the jobs there, so that their order is kept over any number of calls. Without a
lane: the blocked runs of the queue, and the jobs that have arrived on the way to it. With `delete`, the jobs are
deleted with their keys, as RQ does when a queue is emptied. ]]

local moved = 0

-- What an attempt that was released, or whose worker was lost, has left in RQ's registries.
local function clear_started_job(job)
  local executions = 'rq:executions:' .. job
  for _, execution in ipairs(call('ZRANGE', executions, 0, -1)) do
    call('ZREM', (string.gsub(source, '^rq:queue:', 'rq:wip:')), job .. ':' .. execution)
    call('DEL', 'rq:execution:' .. job .. ':' .. execution)
  end
  call('DEL', executions)
  if call('HGET', 'rq:job:' .. job, 'status') == 'started' then call('HSET', 'rq:job:' .. job, 'status', 'queued') end
end

local function return_job(job)
  moved = moved + 1
  clear_started_job(job)
  if delete == '1' then
    call('DEL', 'rq:job:' .. job, 'rq:job:' .. job .. ':dependents')
  else
    call('LPUSH', source, job)
  end
end

local function return_job_of_run(id)
  local job = call('HGET', key_rq_jobs(queue), id)
  if job and cancel_job_run(id, why) then return_job(job) end
end

if lane == '' then
  local most = tonumber(count)
  for _, job in ipairs(call('RPOP', key_rq_arrived(queue), most) or {}) do return_job(job) end
  for _, id in ipairs(call('ZREVRANGE', key_index(queue, 'blocked'), 0, most - 1)) do return_job_of_run(id) end
  return { moved, '' }
end
local entries = call('XREVRANGE', key_lane(lane), before, '-', 'COUNT', count)
for _, entry in ipairs(entries) do
  local home = call('HMGET', key_run(entry[2][2]), 'state', 'entry', 'lane')
  if home[1] == 'pending' and home[2] == entry[1] and home[3] == lane then return_job_of_run(entry[2][2]) end
end
return { moved, #entries == tonumber(count) and '(' .. entries[#entries][1] or '' }
