--[[ dialect/get_runners: return the fields of dialect runners, and the runs that they hold as workers.
KEYS   base
ARGV   now_ms
ROWS   runner
REPLY  [[now_ms, state or '', epoch or '', lease until or 0, revision of the blueprints, number of fields, field, value, ..., run, fence, state, stop_at_ms or '', claimed_at_ms, session or '', ...], ...]
VERBS
FLAGS  no-writes ]]

local revision, replies = call('HGET', key_blueprints(), 'revision') or '0', {}
for runner in next_row do
  local record, fields = call('HMGET', key_worker(runner), 'state', 'epoch'), call('HGETALL', key_dialect_runner(runner))
  local reply = { stamp, record[1] or '', record[2] or '', call('GET', key_worker_lease(runner)) or '0', revision, #fields / 2 }
  for _, value in ipairs(fields) do reply[#reply + 1] = value end
  local holds = call('HGETALL', key_worker_runs(runner))
  for at = 1, #holds, 2 do
    local f = call('HMGET', key_run(holds[at]), 'state', 'stop_at_ms', 'claimed_at_ms', 'session')
    for _, value in ipairs({ holds[at], string.match(holds[at + 1], '^%S+'), f[1] or '', f[2] or '', f[3] or '0', f[4] or '' }) do
      reply[#reply + 1] = value
    end
  end
  replies[#replies + 1] = reply
end
return replies
