--[[ schedule/put: create a schedule, or replace one.
KEYS   base
ARGV   now_ms name revision_before revision overlap rule lane spec options next_ms wake_ms
REPLY  ok, exists, stale, too_many_schedules NUMBER, too_many_for_token NUMBER KIND
VERBS  submit unblock skip cancel wake
FLAGS
USES   plans limits waits session_turns end_run merge_queue create_run schedules
`revision` names the call, and from then on this state of the schedule: a step computed from an earlier one is `stale`.
`revision_before` is that of the schedule to replace, or empty for a new one. A paused schedule stays paused; its
history and its runs are kept. ]]

local before = load_schedule(name)
if before and before.revision == revision then return 'ok' end
if before and revision_before == '' then return 'exists' end
if (before and before.revision or '') ~= revision_before then return 'stale' end
if before and before.last_at_ms and tonumber(next_ms) <= tonumber(before.last_at_ms) then return 'stale' end
local number = not before and call('ZCARD', key_schedules())
if number and number >= SCHEDULES then return 'too_many_schedules ' .. number end
local excess = number and refuse_share('schedules', SCHEDULES, function(other) return call('ZSCORE', key_schedules(), other) end)
if excess then return excess end
local key = key_schedule(name)
call('HSET', key, 'revision', revision, 'overlap', overlap, 'rule', rule, 'lane', lane, 'spec', spec, 'options', options,
  'next_at_ms', next_ms, before and 'changed_at_ms' or 'created_at_ms', stamp)
if made_by == '' then call('HDEL', key, 'made_by') else call('HSET', key, 'made_by', made_by) end
if not before then note_share('schedules', name) end
call('HDEL', key, 'fault', 'fault_at_ms', 'ended_at_ms')
set_schedule_due({ name = name, key = key }, before and before.paused_at_ms and '+inf' or wake_ms)
return 'ok'
