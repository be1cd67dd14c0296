--[[ webhook/lease: acquire or renew the lease of a webhook's deliveries, and record its positions.
KEYS   base
ARGV   now_ms name owner lease_ms positions
REPLY  [taken, url, filter, secret, secret before or '', places, failures, ms to the next try, nonce, message or ''], or [busy, ms], or [idle, state or '']
VERBS
FLAGS  allow-oom
`positions`, if not empty, is the position up to which nothing is to be delivered; only the holder of the lease may set
it. Without `lease_ms` the lease is released. ]]

local key = key_webhook(name)
local f = call('HMGET', key, 'state', 'holder', 'lease_until_ms', 'url', 'filter', 'secret', 'previous_secret',
  'previous_secret_until_ms', 'positions', 'failures', 'retry_at_ms', 'creation')
local hold_ms = tonumber(lease_ms) or 0
if not f[1] then return { 'idle', '' } end
if f[2] and f[2] ~= owner then
  local left = tonumber(f[3]) - now
  -- After a clock was set back, no promise lasts longer than a new one.
  if left > hold_ms and hold_ms > 0 then
    left = hold_ms
    call('HSET', key, 'lease_until_ms', string.format('%.0f', now + left))
  end
  if left > 0 or hold_ms == 0 then return { 'busy', math.max(0, left) } end
elseif f[2] and positions ~= '' then
  call('HSET', key, 'positions', positions)
  f[9] = positions
end
if hold_ms == 0 or f[1] ~= 'active' then
  call('HDEL', key, 'holder', 'lease_until_ms')
  return { 'idle', f[1] }
end
call('HSET', key, 'holder', owner, 'lease_until_ms', string.format('%.0f', now + hold_ms))
local before = f[7] and tonumber(f[8]) > now and f[7] or ''
local retry_in_ms = math.max(0, tonumber(f[11] or 0) - now)
return { 'taken', f[4], f[5], f[6], before, f[9], tonumber(f[10] or 0), retry_in_ms, f[12],
  call('LINDEX', key_redeliveries(name), 0) or '' }
