--[[ run/submit: create runs; what is refused or exists already is answered per run.
KEYS   base
ARGV   now_ms
ROWS   id lane spec options
REPLY  per run: ok, exists ID, id_taken, duplicate ID, no_dependency ID, intake_closed QUEUE, too_many_queues NUMBER, too_many_for_token NUMBER KIND, parent_ended ID, parent_fenced ID, too_deep NUMBER, not_permitted WHY, too_many_children ID, exceeds_burst LIMIT, no_session NAME, closed_session NAME, wrong_agent NAME, no_plan NAME, closed_plan NAME
VERBS  submit unblock skip cancel wake
FLAGS
USES   plans limits waits session_turns end_run merge_queue create_run child_permissions
`spec` is what the executor needs, opaque here. `options` is empty for a plain run, or JSON of what is decided
(create_run.lua): due_at_ms, delay_ms, expires_ms, keep_ms, after, on_failed, open, dedupe, if_live, dedupe_ttl_ms,
debounce_max_ms, plan, task, session, retry, limits, fair, parent, children; and of a child that an attempt of its
parent wants: fence, most. `exists ID` means that a run has the dedupe key and is returned in place of a new one. ]]

local words = {}
for id, lane, spec, options in next_row do
  local parsed = options ~= '' and cjson.decode(options) or nil
  -- One that is sent again is there already, and its parent may have gone on.
  local by_attempt = parsed and parsed.fence and call('EXISTS', key_run(id)) == 0
  words[#words + 1] = by_attempt and refuse_child_permissions(parsed, lane, spec) or create_run(id, lane, spec, parsed)
end
return words
