--[[ run/locate: return the lanes, plans and sessions of runs.
KEYS   base
ARGV   now_ms
ROWS   id
REPLY  [lane or '', plan or '', session or '', ...]
VERBS
FLAGS  no-writes
A run that is forgotten has none of them. ]]

local found = {}
for id in next_row do
  local f = call('HMGET', key_run(id), 'lane', 'plan', 'session')
  for field = 1, 3 do found[#found + 1] = f[field] or '' end
end
return found
