--[[ queue/set_weight: set the weight of a fair key in a queue.
KEYS   base
ARGV   now_ms queue fair weight
REPLY  ok
VERBS
FLAGS  allow-oom
It counts for the runs that come from now on; a weight of 1 is what every key has. ]]

if tonumber(weight) == 1 then
  call('HDEL', key_fair_weights(), queue .. ' ' .. fair)
else
  call('HSET', key_fair_weights(), queue .. ' ' .. fair, weight)
end
return 'ok'
