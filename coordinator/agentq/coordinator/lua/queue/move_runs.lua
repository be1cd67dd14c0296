--[[ queue/move_runs: move unclaimed runs of a queue to another, oldest first, a bounded number per call.
KEYS   base
ARGV   now_ms queue state target
REPLY  [runs moved, 1 if there may be more]
VERBS  transfer unblock
FLAGS  allow-oom
USES   plans limits waits session_turns end_run merge_queue
They keep their priority and demands. One that had room reserved under a limit asks for it again. ]]

local ids = call('ZRANGE', key_index(queue, state), 0, SWEEP_PER_CALL - 1)
local moves = 0
for _, id in ipairs(ids) do
  local run = load(id)
  if run and run.state == state and is_verb_allowed('transfer', state) then
    if run.reserved then release_limits(id, run) end
    leave_fair_queue(id, run)
    reindex(id, run, state, nil)
    run.lane, run.entry = target .. string.match(normal_lane(run.lane), ':.*'), ''
    reindex(id, run, nil, state)
    local entry = state == 'pending' and enqueue(id, run) or ''
    transition(id, run, 'transfer', state, queue .. ' to ' .. target, 'lane', run.lane, 'entry', entry)
    moves = moves + 1
  end
end
if moves > 0 then call('SADD', key_queues(), target) end
return { moves, moves > 0 and #ids == SWEEP_PER_CALL and 1 or 0 }
