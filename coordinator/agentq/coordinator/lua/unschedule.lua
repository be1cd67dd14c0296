--[[ unschedule: remove a schedule and its history; the runs that it made go on.
KEYS   base
ARGV   now_ms name
REPLY  ok, not_found
VERBS  submit unblock skip cancel
FLAGS  allow-oom
USES   limiting ending birth scheduling ]]

return remove_schedule(name) > 0 and 'ok' or 'not_found'
