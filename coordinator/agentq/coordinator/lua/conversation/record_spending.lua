--[[ conversation/record_spending: add the spending of an attempt of an agent to that of its run, its session and its plan.
KEYS   base
ARGV   now_ms id fence cost input cached output turns totals
REPLY  [ok, spent by the run, spent by the session or ''], not_found, fenced, wrong_state STATE
VERBS
FLAGS  allow-oom
USES   conversation
All sums are totals of the attempt so far: the sums recorded before are subtracted, so that a repeated call counts once,
and none decreases. `cost` is in micro-dollars, or empty if unknown. `totals` are the agent's own, kept for the next
attempt. The spending of the run before it was requeued is left out. A cost that is the agent's own total of the
conversation includes attempts that were killed before they could report. No verb: it changes no state and appends no
event. ]]

local run, word = load_for_attempt(id, fence)
if not run then return word end
local before, attempt_sums = spending_of_attempt(run, fence), parse_sums(table.concat({ '0', '0', input, cached, output, turns }, ' '))
local is_behind = false
for at = 3, 6 do
  is_behind = is_behind or attempt_sums[at] < before[at]
  attempt_sums[at] = math.max(attempt_sums[at], before[at])
end
if cost ~= '' then
  attempt_sums[1] = math.max(tonumber(cost), before[1])
else
  attempt_sums[1] = before[1]
  if before[1] == 0 and attempt_sums[3] + attempt_sums[5] + attempt_sums[6] > 0 then attempt_sums[2] = 1 end
end

local key = conversation_keys(id, run)
local difference = add_sums(attempt_sums, before, -1)
local is_conversation_total = cost ~= '' and string.find(totals, '"cost_usd"', 1, true)

if run.plan and difference[1] ~= 0 and call('HEXISTS', key_plan(run.plan), 'budget') == 1 then
  call('HINCRBY', key_plan(run.plan), 'spent', string.format('%.0f', difference[1]))
end

local function add_to_total(text)
  local sums = add_sums(parse_sums(text), difference, 1)
  if is_conversation_total then sums[2] = 0 end
  return sums
end

local spent = add_to_total(call('HGET', run.key, 'spending'))
call('HSET', run.key, 'spending', format_sums(spent), 'attempt_spending', fence .. ' ' .. format_sums(attempt_sums))
local by_session = ''
if run.turn_of then
  by_session = format_sums(add_to_total(call('HGET', key, 'spending')))
  call('HSET', key, 'spending', by_session)
end
if totals ~= '' and not is_behind then call('HSET', key, 'totals', totals) end
return { 'ok', format_sums(add_sums(spent, parse_sums(call('HGET', run.key, 'earlier_spending')), -1)), by_session }
