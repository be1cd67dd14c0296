--[[ schedule/trigger: create a run of a schedule now, regardless of its next tick, its policy and its pause.
KEYS   base
ARGV   now_ms name id
REPLY  ok, exists ID, not_found, id_taken, duplicate ID, wrong_state STATE, intake_closed QUEUE, too_many_queues NUMBER, too_many_for_token NUMBER KIND, no_session NAME, closed_session NAME, wrong_agent NAME, exceeds_burst LIMIT
VERBS  submit unblock skip cancel wake
FLAGS
USES   plans limits waits session_turns end_run merge_queue create_run schedules ]]

local found = load_schedule(name)
if not found then return 'not_found' end
if not is_complete(found) and not found.ended_at_ms then return 'wrong_state damaged' end
local is_new = call('EXISTS', key_run(id)) == 0
local word = create_scheduled_run(found, id, {})
if is_new and word == 'ok' then append_history(found, 'asked', { run = id }) end
return word
