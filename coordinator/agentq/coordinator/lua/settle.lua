--[[ settle: tell more dependents of ended runs how these ended, and cancel children, where one script had too many.
KEYS   base
ARGV   now_ms
REPLY  number of ended runs with dependents or children left
VERBS  unblock skip cancel wake
FLAGS  allow-oom
USES   planning limiting waiting turns ending merging ]]

for _, id in ipairs(call('ZRANGE', key_settling(), 0, SETTLE_A_CALL - 1)) do
  unsettled[#unsettled + 1] = { id = id, state = call('HGET', key_run(id), 'state') or 'missing' }
end
settle(SETTLE_A_CALL)
-- Whoever calls this needs not be told that there is more.
soonest = nil
return call('ZCARD', key_settling())
