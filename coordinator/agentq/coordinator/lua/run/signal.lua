--[[ run/signal: send a signal to a run; it is kept until an attempt that waited for it has received it.
KEYS   base
ARGV   now_ms id operation name data by
REPLY  ok STATE, not_found, wrong_state STATE, too_many_signals COUNT
VERBS  signal
FLAGS
USES   plans limits waits session_turns end_run merge_queue
`operation` names the call: a repeated call changes nothing. A run that waits for this name continues; any other keeps
the signal, in any state, and does not park for this name without finding it. ]]

local run = load(id)
if not run then return 'not_found' end
if call('ZSCORE', key_signal_ids(id), operation) then return 'ok ' .. run.state end
if not is_verb_allowed('signal', run.state) then return 'wrong_state ' .. run.state end
local count = call('XLEN', key_pending_signals(id))
if count >= PENDING_SIGNALS then return 'too_many_signals ' .. count end
call('ZADD', key_signal_ids(id), stamp, operation)
call('ZREMRANGEBYRANK', key_signal_ids(id), 0, -1 - SIGNALS_REMEMBERED)
call('XADD', key_pending_signals(id), '*', 'name', name, 'data', data, 'at_ms', stamp, 'by', by)
if not run.has_signals_or_children then call('HSET', run.key, 'has_signals_or_children', 1, 'extended', 1) end
if run.state == 'waiting' and has_name(call('HGET', run.key, 'awaited_signals') or '', name) then
  wake_run(id, run, 'signal', name)
else
  transition(id, run, 'signal', run.state, name)
end
return 'ok ' .. run.state
