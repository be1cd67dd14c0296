--[[ unschedule: remove a schedule and its history; the runs that it made go on.
KEYS   base
ARGV   now_ms name
REPLY  ok
VERBS  submit unblock skip cancel wake
FLAGS  allow-oom
USES   planning limiting waiting turns ending merging birth scheduling ]]

remove_schedule(name)
return 'ok'
