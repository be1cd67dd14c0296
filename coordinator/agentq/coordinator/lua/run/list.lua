--[[ run/list: list a page of runs, newest first.
KEYS   base
ARGV   now_ms plan session before after count class since_ms until_ms id_suffix token
ROWS   queue state
REPLY  [cursor or '', run, state, lane, attempt, worker, reason, submitted_at_ms, ...]
VERBS
FLAGS  no-writes
Rows of (queue, state) name the indexes to read: the one of all queues if the queue is `*`. With a plan or session, its
index is used and the rows only filter. `before` and `after` are bounds as ids or prefixes of ids, exclusive and
inclusive. A page can be short; pass the cursor as `before` for the next page; an empty cursor is the end. `class`,
`since_ms` and `until_ms`, if not empty, keep only runs that ended with that class, at or after, and before these times;
`id_suffix` keeps only runs whose ids end with it, `token` those that a token submitted. ]]

local wanted, names = {}, {}
for queue, state in next_row do
  wanted[queue .. ':' .. state] = true
  names[#names + 1] = queue == '*' and key_states(state) or key_index(queue, state)
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

local RUN_FIELDS = { 'state', 'lane', 'attempt', 'worker', 'reason', 'submitted_at_ms' }
local earliest, latest = tonumber(since_ms) or 0, tonumber(until_ms) or math.huge
local by_end = class ~= '' or since_ms ~= '' or until_ms ~= ''

local function matches_state(lane, state) return wanted['*:' .. state] or wanted[queue_of(lane) .. ':' .. state] end

local function is_made_by(id) return token == '' or call('HGET', key_run(id), 'made_by') == token end

-- Whether a run ended as is asked for. Its class comes first in an outcome.
local function matches_end(id)
  if not by_end then return true end
  local f = call('HMGET', key_run(id), 'finished_at_ms', 'outcome')
  local at = tonumber(f[1] or nil)
  if not at or at < earliest or at >= latest then return false end
  return class == '' or string.match(f[2] or '', '^{"class":"([%w_]+)"') == class
end

local function ends_with(id) return id_suffix == '' or string.sub(id, -#id_suffix) == id_suffix end

local page = { #ids >= limit and ids[limit] or '' }
for place = 1, math.min(limit, #ids) do
  -- While a process of an earlier version is about, a run can be in two of the indexes of all queues.
  local is_new = ids[place] ~= ids[place - 1]
  local f = is_new and ends_with(ids[place]) and call('HMGET', key_run(ids[place]), unpack(RUN_FIELDS)) or {}
  if f[1] and matches_state(f[2] or '', f[1]) and matches_end(ids[place]) and is_made_by(ids[place]) then
    page[#page + 1] = ids[place]
    for field = 1, #RUN_FIELDS do page[#page + 1] = f[field] or '' end
  end
end
return page
