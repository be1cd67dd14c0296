--[[ schedule/delete: delete a schedule and its history; the runs that it created continue.
KEYS   base
ARGV   now_ms name
REPLY  ok
VERBS  submit unblock skip cancel wake
FLAGS  allow-oom
USES   plans limits waits session_turns end_run merge_queue create_run schedules ]]

delete_schedule(name)
return 'ok'
