--[[ queue/close_intake: refuse new runs of a queue until it is resumed; existing runs continue.
KEYS   base
ARGV   now_ms queue why
REPLY  ok
VERBS
FLAGS  allow-oom ]]

call('HSET', key_intake_closed(), queue, stamp .. ' ' .. why)
return 'ok'
