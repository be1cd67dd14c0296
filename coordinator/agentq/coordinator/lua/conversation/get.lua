--[[ conversation/get: return the conversation that an attempt of an agent starts from.
KEYS   base
ARGV   now_ms id fence
REPLY  [ok, agent_session, host, account, model, cwd, carried, fork, totals, budgets, spent, spent by the session or '', begun], not_found, fenced, wrong_state STATE
VERBS
FLAGS  no-writes
USES   conversation
`carried` is 1 if its transcript can be had, `fork` is 1 if the conversation is another session's, to be gone on from as
one of its own, `begun` if an earlier attempt of this run was in it already. What was spent is without what this attempt
has told. ]]

local run, word = load_for_attempt(id, fence)
if not run then return word end
local f = call('HMGET', conversation_keys(id, run), 'agent_session', 'host', 'account', 'model', 'cwd', 'transcript_of', 'fork',
  'totals', 'budgets', 'spending')
local spent_now = spending_of_attempt(run, fence)
local own = call('HMGET', run.key, 'spending', 'earlier_spending', 'agent_session')
local spent = add_sums(add_sums(parse_sums(own[1]), parse_sums(own[2]), -1), spent_now, -1)
local carried = non_empty(f[1]) and f[6] == f[1] and '1' or ''
local reply = { 'ok' }
for at, value in ipairs({ f[1] or '', f[2] or '', f[3] or '', f[4] or '', run.turn_of and f[5] or '', carried, f[7] or '',
  f[8] or '', run.turn_of and f[9] or '', format_sums(spent), run.turn_of and format_sums(add_sums(parse_sums(f[10]), spent_now, -1)) or '',
  non_empty(f[1]) and own[3] == f[1] and '1' or '' }) do
  reply[at + 1] = value
end
return reply
