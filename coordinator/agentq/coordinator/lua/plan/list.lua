--[[ plan/list: list plans: those named, or a page of all, newest first.
KEYS   base
ARGV   now_ms before count
ROWS   plan
REPLY  [cursor or '', plan, fields as JSON, tasks, count by state, ...]
VERBS
FLAGS  no-writes
USES   pagination plans
`before` is a cursor, from where a page goes on: `created_at_ms plan`. The counts are sizes of indexes, as
`state=count`. ]]

local names, cursor = {}, ''
for name in next_row do names[#names + 1] = name end
if #names == 0 then names, cursor = read_page(key_plans(), before, tonumber(count)) end

local PLAN_FIELDS = { 'name', 'on_failed', 'expected', 'sealed', 'created_at_ms', 'stop_state', 'stop_reason', 'stopped_at_ms',
  'retry_scope', 'end_state', 'ended_at_ms', 'made_by' }
local page = { cursor }
for _, name in ipairs(names) do
  local values, fields = call('HMGET', key_plan(name), unpack(PLAN_FIELDS)), {}
  for at, field in ipairs(PLAN_FIELDS) do fields[field] = values[at] or nil end
  if fields.created_at_ms then
    for _, value in ipairs({ name, json(fields), call('HLEN', key_plan_tasks(name)), task_counts(name) }) do
      page[#page + 1] = value
    end
  end
end
return page
