--[[ namespace/bootstrap: write the schema marker and the number of partitions, unless they exist.
KEYS   base
ARGV   now_ms schema partitions
REPLY  [schema, partitions] as they stand now, evicts_keys POLICY
VERBS
FLAGS  allow-oom
A server that evicts keys when it is full would lose runs in silence; nothing is written to it. ]]

local memory = redis.pcall('INFO', 'memory')
if type(memory) == 'string' then
  local policy = string.match(memory, 'maxmemory_policy:([%w-]+)')
  if policy ~= 'noeviction' and tonumber(string.match(memory, 'maxmemory:(%d+)') or 0) > 0 then
    return 'evicts_keys ' .. policy
  end
end
call('SET', key_schema(), schema, 'NX')
call('SET', key_partitions(), partitions, 'NX')
return { call('GET', key_schema()), call('GET', key_partitions()) }
