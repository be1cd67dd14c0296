--[[ attempt/get_wait_result: return what an attempt resumes with: what its run waited for, and the state that the run saved.
KEYS   base
ARGV   now_ms id fence after
REPLY  [ok, next, why, saved_state, number of messages, id, name, data, at, by, ..., child, state, outcome, ...], unparked, not_found, fenced, wrong_state STATE
VERBS
FLAGS  allow-oom
USES   waits
No verb: it changes no state and appends no event. The delivered signals and children are recorded with the fence, and
kept until this attempt parks again: another attempt, if this one fails or is lost, gets the same. `after` is the `next`
of the reply before, for children that did not fit into it; both are empty at an end. `why` is what ended the wait:
approval, signal, children, time, or else wake. `unparked` means that the run has never parked. ]]

local run = load(id)
if not run then return 'not_found' end
if run.fence ~= fence then return 'fenced' end
if not is_held(run) then return 'wrong_state ' .. run.state end
local f = call('HMGET', run.key, 'parked_at_ms', 'alarm_at_ms', 'awaited_children', 'saved_state', 'awaited_signals', 'delivered_to')
if not f[1] then return 'unparked' end

local received_signals, last_place = {}, f[6] and string.match(f[6], '(%S+)$')
if after == '' then
  received_signals = awaited_signals(id, f[5])
  local newest = f[3] ~= '' and call('ZRANGE', key_ended_children(id), -1, -1, 'WITHSCORES')[2]
  last_place = newest or '-'
  call('HSET', run.key, 'delivered_to', fence .. ' ' .. (#received_signals > 0 and received_signals[#received_signals][1] or '-') .. ' ' .. last_place)
end

local why = 'wake'
if #received_signals > 0 then
  why = received_signals[1][2][2] == 'approval' and 'approval' or 'signal'
elseif have_children_ended(id, f[3]) then
  why = 'children'
elseif (tonumber(f[2]) or now + 1) <= now then
  why = 'time'
end
local reply = { 'ok', '', why, f[4], #received_signals }
for _, entry in ipairs(received_signals) do
  local fields = entry[2]
  for _, value in ipairs({ entry[1], fields[2], fields[4], fields[6], fields[8] }) do reply[#reply + 1] = value end
end
if last_place == '-' then return reply end

local ended_children = call('ZRANGE', key_ended_children(id), '(' .. (after == '' and '0' or after), last_place, 'BYSCORE', 'LIMIT', 0,
  CHILDREN_PER_CALL, 'WITHSCORES')
local bytes = 0
for at = 1, #ended_children, 2 do
  local child, state = string.match(ended_children[at], '^(%S+) (%S+)$')
  local outcome = call('HGET', key_run(child), 'outcome') or ''
  bytes = bytes + #outcome
  reply[#reply + 1], reply[#reply + 2], reply[#reply + 3] = child, state, outcome
  reply[2] = ended_children[at + 1] ~= last_place and ended_children[at + 1] or ''
  if bytes >= ENDED_CHILDREN_BYTES then break end
end
return reply
