--[[ limit/set: set the capacity of a limit; without values, remove it.
KEYS   base
ARGV   now_ms limit max units per_ms burst when_full
REPLY  ok, not_found
VERBS  unblock cancel block
FLAGS  allow-oom
USES   plans limits waits session_turns end_run merge_queue
`max` is how many runs may be held under it; `units` of it come back every `per_ms`, up to `burst`. Each may be empty.
Runs that hold more than a new limit allows keep it. The limits `queue:NAME` and `global` apply to every run of a queue,
and to every run: runs held when such a limit is set count as well. A shut limit stays shut; the bucket is full again.
]]

-- Add the runs of a queue that are held already to the holders of a limit that applies by itself.
local function add_held_runs(queue)
  for _, state in ipairs({ 'claimed', 'running' }) do
    local scored = {}
    for _, id in ipairs(call('ZRANGE', queue and key_index(queue, state) or key_states(state), 0, -1)) do
      scored[#scored + 1], scored[#scored + 2] = stamp, id
    end
    each_chunk(scored, 1000, function(...) call('ZADD', key_limit_holders(limit), ...) end)
  end
end

local key = key_limit(limit)
local is_new = call('HEXISTS', key, 'max') + call('HEXISTS', key, 'units') == 0
freed_limits[1] = limit
call('HDEL', key, 'max', 'units', 'per_ms', 'burst', 'when_full', 'tokens', 'filled_at_ms')
if max ~= '' then call('HSET', key, 'max', max) end
if units ~= '' then call('HSET', key, 'units', units, 'per_ms', per_ms, 'burst', burst) end
if (max ~= '' or units ~= '') and when_full ~= '' then call('HSET', key, 'when_full', when_full) end
update_limit_set(limit)
if max == '' and units == '' then return is_new and 'not_found' or 'ok' end
if is_new and is_implied_limit(limit) then add_held_runs(string.match(limit, '^queue:(.*)')) end
return 'ok'
