--[[ RQ jobs as runs: maps a job's id to a run until its outcome is written. ]]

-- The text of the run that a job is, from its pieces around the id and, where RQ gives the job a time, around that too.
-- RQ's workers kill a job that goes on for so long after its own timeout.
local function job_spec(job, head, tail, timeout_parts)
  local timeout = tonumber(call('HGET', 'rq:job:' .. job, 'timeout') or nil)
  if not timeout or timeout <= 0 then return head .. json(job) .. tail end
  local pieces = cjson.decode(timeout_parts)
  return pieces[1] .. json(job) .. pieces[2] .. string.format('%.0f', timeout * 1000 + RQ_KILL_MS) .. pieces[3]
end

-- Let a job wait in a lane. A job that is pushed again while its run waits is the same one; while that runs, it follows
-- it.
local function submit_job(id, lane, job, head, tail, timeout_parts)
  local word = create_run(id, lane, job_spec(job, head, tail, timeout_parts), { dedupe_key = 'rq:' .. job, if_live = 'follow' })
  if word == 'ok' then call('HSET', key_rq_jobs(queue_of(lane)), id, job) end
  return word
end

-- Take a job back from the run that waits for it; false if none does, or if its worker has it.
local function cancel_job_run(id, why)
  local run = load(id)
  if not run or is_held(run) or is_ended(run) then return false end
  call('HDEL', key_rq_jobs(queue_of(run.lane)), id)
  end_run_because(id, run, 'cancel', 'cancelled', 'cancelled', why)
  return true
end
