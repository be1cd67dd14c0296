--[[ run/get_metrics: return the measured fields of ended runs.
KEYS   base
ARGV   now_ms
ROWS   id
REPLY  [lane or '', started_at_ms, finished_at_ms, class, model, spending, ...]
VERBS
FLAGS  no-writes
Six values for each run, all empty for one that has been forgotten. ]]

local reply = {}
for id in next_row do
  local f = call('HMGET', key_run(id), 'lane', 'started_at_ms', 'finished_at_ms', 'outcome', 'model', 'spending')
  f[4] = string.match(f[4] or '', '^{"class":"([%w_]+)"')
  for at = 1, 6 do reply[#reply + 1] = f[at] or '' end
end
return reply
