--[[ spend: what an attempt of an agent has spent so far, added to what its run, its session and its plan have.
KEYS   base
ARGV   now_ms id fence cost input cached output turns totals
REPLY  [ok, spent by the run, spent by the session or ''], not_found, fenced, wrong_state STATE
VERBS
FLAGS  allow-oom
USES   conversing
All of them are of the attempt so far: what it told before is taken off, so that a call sent twice counts once, and none ever
goes back. `cost` is in micro-dollars, or empty if nobody knows. `totals` are the agent's own, kept for the next attempt. What
the run had spent before it began anew is left out. A cost that is the agent's own total of the conversation has in it what
attempts cost that were killed before they could tell. No verb: it changes no state and tells no event. ]]

local run, word = load_own(id, fence)
if not run then return word end
local before, told = told_by(run, fence), sums_of(table.concat({ '0', '0', input, cached, output, turns }, ' '))
local behind = false
for at = 3, 6 do
  behind = behind or told[at] < before[at]
  told[at] = math.max(told[at], before[at])
end
if cost ~= '' then
  told[1] = math.max(tonumber(cost), before[1])
else
  told[1] = before[1]
  if before[1] == 0 and told[3] + told[5] + told[6] > 0 then told[2] = 1 end
end

local key = conversation_of(id, run)
local more = plus(told, before, -1)
local is_whole = cost ~= '' and string.find(totals, '"cost_usd"', 1, true)

if run.plan and more[1] ~= 0 and call('HEXISTS', key_plan(run.plan), 'budget') == 1 then
  call('HINCRBY', key_plan(run.plan), 'spent', string.format('%.0f', more[1]))
end

local function added_to(text)
  local sums = plus(sums_of(text), more, 1)
  if is_whole then sums[2] = 0 end
  return sums
end

local spent = added_to(call('HGET', run.key, 'spending'))
call('HSET', run.key, 'spending', sums_text(spent), 'spending_now', fence .. ' ' .. sums_text(told))
local by_session = ''
if run.turn then
  by_session = sums_text(added_to(call('HGET', key, 'spending')))
  call('HSET', key, 'spending', by_session)
end
if totals ~= '' and not behind then call('HSET', key, 'totals', totals) end
return { 'ok', sums_text(plus(spent, sums_of(call('HGET', run.key, 'spending_before')), -1)), by_session }
