--[[ settle: tell more dependents of ended runs how these ended, where one script had too many to tell.
KEYS   base
ARGV   now_ms
REPLY  number of ended runs with dependents left
VERBS  unblock skip
FLAGS  allow-oom ]]

for _, id in ipairs(call('ZRANGE', key_settling(), 0, 9)) do
  unsettled[#unsettled + 1] = { id = id, state = call('HGET', key_run(id), 'state') }
end
settle(SETTLE_A_CALL)
return call('ZCARD', key_settling())
