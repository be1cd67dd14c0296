--[[ resume: let a queue go on that was paused.
KEYS   base
ARGV   now_ms queue
REPLY  ok, not_paused
VERBS
FLAGS  allow-oom
The queue `*` ends the pause of all, and leaves the queues that were paused by name. ]]

if call('HDEL', key_paused(), queue) == 0 then return 'not_paused' end
announce_lanes(queue)
return 'ok'
