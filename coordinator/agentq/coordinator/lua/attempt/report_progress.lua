--[[ attempt/report_progress: report the progress of an attempt.
KEYS   base
ARGV   now_ms id fence number progress
REPLY  ok, not_found, fenced, wrong_state STATE
VERBS  report
FLAGS
Reports are numbered from 1 by the worker; one that is not newer than the last is `ok` and changes nothing. ]]

local run, word = load_held(id, fence, 'report')
if not run then return word end
if tonumber(number) <= tonumber(call('HGET', run.key, 'progress_number') or 0) then return 'ok' end
transition(id, run, 'report', run.state, progress, 'progress', progress, 'progress_number', number)
return 'ok'
