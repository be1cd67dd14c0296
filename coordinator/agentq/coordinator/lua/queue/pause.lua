--[[ queue/pause: claim nothing from a queue, or from any, until it is resumed; what is held goes on.
KEYS   base
ARGV   now_ms queue why
REPLY  ok
VERBS
FLAGS  allow-oom
The queue `*` is all of them. ]]

call('HSET', key_paused(), queue, stamp .. ' ' .. why)
announce_lanes(queue)
return 'ok'
