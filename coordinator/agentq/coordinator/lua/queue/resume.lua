--[[ queue/resume: resume a queue that was paused or closed to new runs.
KEYS   base
ARGV   now_ms queue
REPLY  ok, not_paused
VERBS
FLAGS  allow-oom
The queue `*` ends the pause of all, and leaves the queues that were paused by name. ]]

local was_closed, was_paused = call('HDEL', key_intake_closed(), queue), call('HDEL', key_paused(), queue)
if was_paused == 1 then announce_lanes(queue) end
return was_closed + was_paused > 0 and 'ok' or 'not_paused'
