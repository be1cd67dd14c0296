--[[ limit/block_until: block all claims under a limit until a time; a time in the past unblocks it.
KEYS   base
ARGV   now_ms limit until_ms why
REPLY  ok
VERBS  unblock
FLAGS  allow-oom
USES   plans limits waits session_turns end_run merge_queue
Runs that hold capacity continue. The limit opens by itself. ]]

block_limit_until(limit, until_ms, why)
return 'ok'
