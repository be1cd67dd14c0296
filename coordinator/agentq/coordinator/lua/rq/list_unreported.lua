--[[ rq/list_unreported: list jobs of an RQ queue whose runs have ended, or were deleted, and whose end RQ does not know.
KEYS   base
ARGV   now_ms queue cursor count
REPLY  [cursor to go on with, run, job, state, attempt, error, run, ...]
VERBS
FLAGS  no-writes ]]

local step = call('HSCAN', key_rq_jobs(queue), cursor, 'COUNT', count)
local reply = { step[1] }
for at = 1, #step[2], 2 do
  local f = call('HMGET', key_run(step[2][at]), 'state', 'attempt', 'outcome')
  local run = { state = f[1] or 'failed' }
  if is_ended(run) then
    local outcome = f[3] and cjson.decode(f[3]) or {}
    for _, value in ipairs({ step[2][at], step[2][at + 1], run.state, f[2] or '0', outcome.error or '' }) do
      reply[#reply + 1] = value
    end
  end
end
return reply
