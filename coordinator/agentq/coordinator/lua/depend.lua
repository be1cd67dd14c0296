--[[ depend: more dependencies for a run whose submit takes several calls; the last call seals it.
KEYS   base
ARGV   now_ms id seal expires_ms
ROWS   parent
REPLY  ok, not_found, no_dependency ID, wrong_state STATE
VERBS  submit unblock skip
FLAGS
`seal` is 1 in the last call. `expires_ms` is the run's own patience, from its sealing on, or 0. ]]

local run = load(id)
if not run then return 'not_found' end
local parents = {}
for parent in next_row do parents[#parents + 1] = parent end
local orphan = first_missing(parents)
if orphan then return 'no_dependency ' .. orphan end
if run.state ~= 'blocked' then return is_ended(run) and 'ok' or 'wrong_state ' .. run.state end
local ended = {}
if call('HEXISTS', key_run(id), 'open') == 1 then ended = await(id, parents) end
if seal == '1' and call('HDEL', key_run(id), 'open') == 1 then
  call('HDEL', key_run(id), 'until_ms')
  timers[id] = false
  if tonumber(expires_ms) > 0 then
    timers[id] = now + expires_ms
    call('HSET', run.key, 'until_ms', timers[id])
  end
end
for _, parent in ipairs(ended) do satisfy(id, parent.id, parent.state) end
run = load(id)
if run.state == 'blocked' and call('HEXISTS', key_run(id), 'open') == 0 and call('EXISTS', key_needs(id)) == 0 then
  unblock(id, run)
end
return 'ok'
