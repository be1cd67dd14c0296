--[[ queue/close_intake: let no new runs into a queue until it is resumed; what is there goes on.
KEYS   base
ARGV   now_ms queue why
REPLY  ok
VERBS
FLAGS  allow-oom ]]

call('HSET', key_intake_closed(), queue, stamp .. ' ' .. why)
return 'ok'
