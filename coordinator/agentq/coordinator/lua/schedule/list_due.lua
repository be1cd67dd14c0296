--[[ schedule/list_due: list due schedules, with the fields that their next step is computed from.
KEYS   base
ARGV   now_ms count
REPLY  [now_ms, when more is due or 0, schedule, revision, next_at_ms, rule, ...]
VERBS
FLAGS  no-writes
Of a schedule that has been damaged the fields are empty. ]]

local after = call('ZRANGE', key_schedules(), '(' .. stamp, '(+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')
local reply = { stamp, after[2] or '0' }
for _, name in ipairs(call('ZRANGE', key_schedules(), '-inf', stamp, 'BYSCORE', 'LIMIT', 0, count)) do
  local fields = redis.pcall('HMGET', key_schedule(name), 'revision', 'next_at_ms', 'rule')
  reply[#reply + 1] = name
  for at = 1, 3 do reply[#reply + 1] = fields[at] or '' end
end
return reply
