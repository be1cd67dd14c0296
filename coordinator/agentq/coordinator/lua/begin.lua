--[[ begin: a session, new, or from where another one is.
KEYS   base
ARGV   now_ms name agent cwd model budgets fork op
REPLY  ok, existing STATE, no_session NAME, wrong_agent NAME, many_sessions NUMBER, many_of_token NUMBER KIND
VERBS
FLAGS
`fork` names the session to go on from: what is empty of the rest is as there. `op` names the call: sent again it changes
nothing. ]]

local FACTS = { 'agent_session', 'host', 'account', 'stays', 'carried_of', 'totals' }
local ASKED = { 'cwd', 'model' }

local key = key_session(name)
local f = call('HMGET', key, 'op', 'state')
if f[1] == op then return 'ok' end
if f[2] then return 'existing ' .. f[2] end

local number = call('ZCARD', key_sessions())
if number >= SESSIONS then return 'many_sessions ' .. number end
local excess = refuse_share('sessions', SESSIONS, function(other) return call('ZSCORE', key_sessions(), other) end)
if excess then return excess end

local facts = { 'agent', agent, 'state', 'open', 'op', op, 'created_at_ms', stamp, 'used_at_ms', stamp }
local function set(field, value)
  if value and value ~= '' then facts[#facts + 1], facts[#facts + 2] = field, value end
end

local source = { cwd = cwd, model = model }
if fork ~= '' then
  local from = key_session(fork)
  local of = call('HGET', from, 'agent')
  if not of then return 'no_session ' .. fork end
  if of ~= agent then return 'wrong_agent ' .. fork .. ', which is one of ' .. of end
  for _, field in ipairs(FACTS) do set(field, call('HGET', from, field)) end
  for _, field in ipairs(ASKED) do
    if source[field] == '' then source[field] = call('HGET', from, field) end
  end
  if present(call('HGET', from, 'agent_session')) then set('fork', '1') end
  set('forked_from', fork)
  call('COPY', key_session_carried(fork), key_session_carried(name))
end
set('budgets', budgets)
set('made_by', made_by)
for _, field in ipairs(ASKED) do set(field, source[field]) end
call('HSET', key, unpack(facts))
call('ZADD', key_sessions(), stamp, name)
note_share('sessions', name)
return 'ok'
