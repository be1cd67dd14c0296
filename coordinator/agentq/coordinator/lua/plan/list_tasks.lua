--[[ plan/list_tasks: list a page of a plan's tasks, in the order of the plan.
KEYS   base
ARGV   now_ms plan after count
ROWS   state
REPLY  [cursor or '', run, task, state, attempt, worker, reason, submitted_at_ms, claimed_at_ms, started_at_ms, finished_at_ms, class, spending, lane, ...]
VERBS
FLAGS  no-writes
With states, those in one of them; else all. `after` is the last run of the page before. A page can be short; an empty
cursor means that this was all. ]]

local names = {}
for state in next_row do names[#names + 1] = key_plan_index(plan, state) end
if #names == 0 then names[1] = key_plan_runs(plan) end

local limit, ids = tonumber(count), {}
for _, name in ipairs(names) do
  local from = after == '' and '-' or '(' .. after
  for _, id in ipairs(call('ZRANGE', name, from, '+', 'BYLEX', 'LIMIT', 0, limit)) do ids[#ids + 1] = id end
end
table.sort(ids)

local RUN_FIELDS = { 'task', 'state', 'attempt', 'worker', 'reason', 'submitted_at_ms', 'claimed_at_ms', 'started_at_ms',
  'finished_at_ms', 'outcome', 'spending', 'lane' }
local page = { #ids >= limit and ids[limit] or '' }
for place = 1, math.min(limit, #ids) do
  local f = call('HMGET', key_run(ids[place]), unpack(RUN_FIELDS))
  if f[1] then
    -- Its class comes first in an outcome.
    f[10] = string.match(f[10] or '', '^{"class":"([%w_]+)"')
    page[#page + 1] = ids[place]
    for field = 1, #RUN_FIELDS do page[#page + 1] = f[field] or '' end
  end
end
return page
