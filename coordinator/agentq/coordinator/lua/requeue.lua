--[[ requeue: an ended run begins again, with fresh budgets and its history.
KEYS   base
ARGV   now_ms id op
REPLY  ok STATE, not_found, duplicate ID, settling, wrong_state STATE, no_session NAME, closed_session NAME, wrong_agent NAME
VERBS  requeue
FLAGS
USES   limiting waiting turns ending
`op` names the call: sent again it changes nothing. What it waited for and saved is forgotten, and the conversation of an agent,
unless that is its session's: it begins anew. A turn stands at the end of the line. `settling` means that dependents are still being told how the run
ended; try later. `duplicate ID` means that another run has taken its dedupe key meanwhile. ]]

local run = load(id)
if not run then return 'not_found' end
if run.op == 'requeue ' .. op then return 'ok ' .. run.state end
if not is_ended(run) then return 'wrong_state ' .. run.state end
if call('ZSCORE', key_settling(), id) then return 'settling' end
if run.turn then
  local refused = refuse_turn(run.turn, call('HGET', run.key, 'agent'))
  if refused then return refused end
end
if run.dedupe then
  local other = holder_of(run.dedupe)
  if other and other ~= id then return 'duplicate ' .. other end
  call('SET', key_dedupe(run.dedupe), id)
end
if run.parent then rejoin_parent(id, run) end
if run.attempt > 0 then
  local record, value = archive(run, 'requeue', call('HGET', run.key, 'outcome'))
  call('HSET', run.key, record, value)
end
call('HDEL', run.key, 'outcome', 'finished_at_ms', 'failures', 'crashes', 'deferrals', 'claimed_at_ms',
  'started_at_ms', 'progress', 'progress_number', 'wanted', 'due_at_ms', 'until_ms', 'reason', 'stop_at_ms', 'bound',
  'parked_at_ms', 'awaits', 'awaits_children', 'awaits_until_ms', 'saved', 'handed', 'returns', 'follows', 'follower',
  'unbegun')
for class in pairs(retry_policy(run).classes or {}) do call('HDEL', run.key, 'spent:' .. class) end
if run.schedule then call('ZADD', key_made(run.schedule), 0, id) end
run.until_ms, run.due_at_ms = nil, nil
if run.turn then
  join_turns(id, run)
else
  run.stays = nil
  call('HDEL', run.key, 'agent_session', 'host', 'account', 'stays', 'totals')
end
local spending = call('HGET', run.key, 'spending')
if spending then call('HSET', run.key, 'spending_before', spending) end
run.lane = lane_home(run)
local waits = run.turn and first_turn(run.turn) ~= id
if waits then call('HSET', run.key, 'reason', 'turn') end
move(id, run, 'requeue', waits and 'blocked' or 'pending', '', 'entry', waits and '' or enqueue(id, run), 'fence', '',
  'worker', '', 'lane', run.lane, 'op', 'requeue ' .. op, 'more', 1, 'requeued_at_ms', stamp)
return 'ok ' .. run.state
