--[[ webhook/record_delivery: record an attempt to deliver a message.
KEYS   base
ARGV   now_ms name owner lease_ms operation message type body positions ok status error took_ms gone wait_ms random
REPLY  ok, fenced, not_found
VERBS
FLAGS  allow-oom
`positions` is the position after the message in the events, or empty for a message that a client requested, which is
tried once. A failure keeps the position and sets the time of the next attempt, which is later if the receiver asked to
wait for `wait_ms`; after too many failures for too long, or if the receiver is `gone`, the webhook is disabled. The
lease of its owner is renewed for `lease_ms`. `operation` names the call: a repeated call changes nothing. ]]

local key = key_webhook(name)
local f = call('HMGET', key, 'state', 'holder', 'last_delivery', 'failures', 'failing_since_ms')
if not f[1] then return 'not_found' end
if f[3] == operation then return 'ok' end
if f[2] ~= owner then return 'fenced' end

local failures = tonumber(f[4] or 0)
call('HSET', key, 'last_delivery', operation, 'lease_until_ms', string.format('%.0f', now + lease_ms))
call('XADD', key_deliveries(name), 'MAXLEN', tostring(DELIVERIES_KEPT), '*', 'message', message, 'type', type,
  'ok', ok, 'status', status, 'error', error, 'took_ms', took_ms, 'attempt', tostring(positions == '' and 1 or failures + 1),
  'requested', positions == '' and '1' or '', 'body', body)

if positions == '' then
  call('LPOP', key_redeliveries(name))
  if ok == '1' then call('HSET', key, 'delivered_at_ms', stamp) end
  return 'ok'
end
if ok == '1' then
  call('HSET', key, 'positions', positions, 'delivered_at_ms', stamp)
  call('HDEL', key, 'failures', 'failing_since_ms', 'retry_at_ms', 'why')
  return 'ok'
end

failures = failures + 1
local since = tonumber(f[5] or nil) or now
local wait = WEBHOOK_DELAY_MS
for _ = 2, failures do wait = math.min(wait * WEBHOOK_DELAY_FACTOR, WEBHOOK_DELAY_MS_MAX) end
wait = math.max(wait * (1 + tonumber(random)) / 2, math.min(tonumber(wait_ms), WEBHOOK_DELAY_MS_MAX))
call('HSET', key, 'failures', failures, 'failing_since_ms', string.format('%.0f', since), 'retry_at_ms',
  string.format('%.0f', now + wait), 'why', error)
if gone == '1' or failures >= WEBHOOK_FAILURES and now - since >= WEBHOOK_FAILING_MS then
  local why = gone == '1' and 'the receiver says that it is gone' or error
  call('HSET', key, 'state', 'disabled', 'why', why)
  call('XADD', key_events(), 'MAXLEN', '~', tostring(EVENTS_KEPT), '*', 'event', 'webhook_disabled', 'run', '', 'state',
    '', 'attempt', '0', 'worker', '', 'detail', name .. ': ' .. why)
end
return 'ok'
