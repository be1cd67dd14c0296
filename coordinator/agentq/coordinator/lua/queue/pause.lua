--[[ queue/pause: stop claims from a queue, or from all, until it is resumed; held runs continue.
KEYS   base
ARGV   now_ms queue why
REPLY  ok
VERBS
FLAGS  allow-oom
The queue `*` is all of them. ]]

call('HSET', key_paused(), queue, stamp .. ' ' .. why)
announce_lanes(queue)
return 'ok'
