--[[ bootstrap: write the schema marker and the number of partitions, unless they stand already.
KEYS   base
ARGV   now_ms schema partitions
REPLY  [schema, partitions] as they stand now
VERBS
FLAGS  allow-oom ]]

call('SET', key_schema(), schema, 'NX')
call('SET', key_partitions(), partitions, 'NX')
return { call('GET', key_schema()), call('GET', key_partitions()) }
