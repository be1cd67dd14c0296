--[[ depend: more dependencies for a run whose submit takes several calls; the last call seals it.
KEYS   base
ARGV   now_ms id seal expires_ms
ROWS   parent
REPLY  ok, not_found, no_dependency ID
VERBS  submit unblock skip cancel wake
FLAGS
USES   limiting waiting ending
`seal` is 1 in the last call. `expires_ms` is the run's own patience, from its sealing on, or 0. A run that is
not open any more was sealed by this call, sent before, or has ended: there is nothing left to say of it. ]]

local run = load(id)
if not run then return 'not_found' end
if run.state ~= 'blocked' or call('HEXISTS', run.key, 'open') == 0 then return 'ok' end
local parents = {}
for parent in next_row do
  -- It exists by now, but not for itself: as in a submit that has room for all dependencies.
  if parent == id then return 'no_dependency ' .. id end
  parents[#parents + 1] = parent
end
local orphan = first_missing(parents)
if orphan then return 'no_dependency ' .. orphan end
local ended = await(id, parents)
if seal == '1' then
  call('HDEL', run.key, 'open', 'until_ms')
  timers[id] = false
  if tonumber(expires_ms) > 0 then
    timers[id] = now + expires_ms
    call('HSET', run.key, 'until_ms', timers[id])
  end
end
for _, parent in ipairs(ended) do satisfy(id, parent.id, parent.state) end
if seal == '1' and call('EXISTS', key_needs(id)) == 0 then
  run = load(id)
  if run.state == 'blocked' then unblock(id, run) end
end
return 'ok'
