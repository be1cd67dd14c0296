--[[ session/create: create a session, new or forked from another.
KEYS   base
ARGV   now_ms name agent cwd model budgets fork operation
REPLY  ok, name_taken STATE, no_session NAME, wrong_agent NAME, too_many_sessions NUMBER, too_many_for_token NUMBER KIND
VERBS
FLAGS
`fork` names the session to continue from: empty arguments are taken from it. `operation` names the call: a repeated
call changes nothing. ]]

local COPIED_FIELDS = { 'agent_session', 'host', 'account', 'pinned_host', 'transcript_of', 'totals' }
local OVERRIDABLE_FIELDS = { 'cwd', 'model' }

local key = key_session(name)
local f = call('HMGET', key, 'operation', 'state')
if f[1] == operation then return 'ok' end
if f[2] then return 'name_taken ' .. f[2] end

local number = call('ZCARD', key_sessions())
if number >= SESSIONS then return 'too_many_sessions ' .. number end
local excess = refuse_share('sessions', SESSIONS, function(other) return call('ZSCORE', key_sessions(), other) end)
if excess then return excess end

local pairs_to_set = { 'agent', agent, 'state', 'open', 'operation', operation, 'created_at_ms', stamp, 'used_at_ms', stamp }
local function add_field(field, value)
  if value and value ~= '' then pairs_to_set[#pairs_to_set + 1], pairs_to_set[#pairs_to_set + 2] = field, value end
end

local source = { cwd = cwd, model = model }
if fork ~= '' then
  local from = key_session(fork)
  local of = call('HGET', from, 'agent')
  if not of then return 'no_session ' .. fork end
  if of ~= agent then return 'wrong_agent ' .. fork .. ', which is one of ' .. of end
  for _, field in ipairs(COPIED_FIELDS) do add_field(field, call('HGET', from, field)) end
  for _, field in ipairs(OVERRIDABLE_FIELDS) do
    if source[field] == '' then source[field] = call('HGET', from, field) end
  end
  if non_empty(call('HGET', from, 'agent_session')) then add_field('fork', '1') end
  add_field('forked_from', fork)
  call('COPY', key_session_transcript(fork), key_session_transcript(name))
end
add_field('budgets', budgets)
add_field('made_by', made_by)
for _, field in ipairs(OVERRIDABLE_FIELDS) do add_field(field, source[field]) end
call('HSET', key, unpack(pairs_to_set))
call('ZADD', key_sessions(), stamp, name)
note_share('sessions', name)
return 'ok'
