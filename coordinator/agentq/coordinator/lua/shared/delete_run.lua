--[[ Deletes ended runs; used by timers and by operators. ]]

-- Delete an ended run with all its keys; false, and nothing is done, while its dependents are still being notified.
local function delete_run(id, run)
  if call('ZSCORE', key_dependents_to_notify(), id) then return false end
  local f = call('HMGET', key_run(id), 'plan', 'session')
  if f[1] then call('ZREM', key_plan_runs(f[1]), id) end
  if f[2] then call('ZREM', key_session_runs(f[2]), id) end
  reindex(id, run, run.state, nil)
  if run.plan then delete_task(run) end
  timers[id] = false
  call('UNLINK', key_run(id), key_dependencies(id), key_dependents(id), key_log(id), key_signal_ids(id))
  return true
end
