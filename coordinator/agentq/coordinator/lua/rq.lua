--[[ RQ's jobs as runs: how the id of a job becomes a run, by which it is known until its outcome is written. ]]

-- Let a job wait in a lane. A job that is pushed again while its run waits is the same one; while that runs, it follows it.
local function take_in(id, lane, job, head, tail)
  local word = put(id, lane, head .. json(job) .. tail, { dedupe = 'rq:' .. job, if_live = 'follow' })
  if word == 'ok' then call('HSET', key_rq_jobs(queue_of(lane)), id, job) end
  return word
end

-- Take a job back from the run that waits for it; false if none does, or if its worker has it.
local function take_back(id, why)
  local run = load(id)
  if not run or is_held(run) or is_ended(run) then return false end
  call('HDEL', key_rq_jobs(queue_of(run.lane)), id)
  end_with(id, run, 'cancel', 'cancelled', 'cancelled', why)
  return true
end
