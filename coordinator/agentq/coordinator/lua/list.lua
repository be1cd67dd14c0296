--[[ list: a page of runs, newest first.
KEYS   base
ARGV   now_ms plan session before after count class since_ms until_ms
ROWS   queue state
REPLY  [cursor or '', run, state, lane, attempt, worker, reason, submitted_at_ms, ...]
VERBS
FLAGS  no-writes
Rows of (queue, state) name the indexes to look in: every queue when a queue is `*`. With a plan or session that index is
used and the rows only filter. `before` and `after` are bounds as ids or beginnings of ids, exclusive and inclusive. A
page can be short; with the cursor as `before` the next call goes on, and an empty cursor means that this was all.
`class`, `since_ms` and `until_ms`, where not empty, leave only runs that ended so, then or later, and before. ]]

local wanted, names = {}, {}
local function want(of, state)
  wanted[of .. ':' .. state] = true
  names[#names + 1] = key_index(of, state)
end

local queues
for queue, state in next_row do
  if queue == '*' then
    queues = queues or call('SMEMBERS', key_queues())
    for _, each in ipairs(queues) do want(each, state) end
  else
    want(queue, state)
  end
end

local upper = before == '' and '+' or '(' .. before
local lower = after == '' and '-' or '[' .. after
local limit = tonumber(count)
if plan ~= '' then names = { key_plan_runs(plan) } elseif session ~= '' then names = { key_session_runs(session) } end

local ids = {}
for _, name in ipairs(names) do
  for _, id in ipairs(call('ZRANGE', name, upper, lower, 'BYLEX', 'REV', 'LIMIT', 0, limit)) do ids[#ids + 1] = id end
end
table.sort(ids, function(a, b) return a > b end)

local FILLED = { 'state', 'lane', 'attempt', 'worker', 'reason', 'submitted_at_ms' }
local earliest, latest = tonumber(since_ms) or 0, tonumber(until_ms) or math.huge
local by_end = class ~= '' or since_ms ~= '' or until_ms ~= ''

-- Whether a run ended as is asked for. Its class comes first in an outcome.
local function ended_so(id)
  if not by_end then return true end
  local f = call('HMGET', key_run(id), 'finished_at_ms', 'outcome')
  local at = tonumber(f[1] or nil)
  if not at or at < earliest or at >= latest then return false end
  return class == '' or string.match(f[2] or '', '^{"class":"([%w_]+)"') == class
end

local page = { #ids >= limit and ids[limit] or '' }
for place = 1, math.min(limit, #ids) do
  local f = call('HMGET', key_run(ids[place]), unpack(FILLED))
  if f[1] and wanted[queue_of(f[2]) .. ':' .. f[1]] and ended_so(ids[place]) then
    page[#page + 1] = ids[place]
    for field = 1, #FILLED do page[#page + 1] = f[field] or '' end
  end
end
return page
