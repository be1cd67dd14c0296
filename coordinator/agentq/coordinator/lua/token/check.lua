--[[ token/check: check shown tokens: return what each may do, and whether its rate admits a request now.
KEYS   base
ARGV   now_ms units per_ms burst
ROWS   token shown
REPLY  [name, kind, digest, scopes, queues, expired or '', wait_ms, ...]
VERBS
FLAGS  allow-oom
Seven values for each token, all empty for an unknown token. `units` in `per_ms`, `burst` at once, is the rate of tokens
without a rate of their own; empty for no limit. A token that has used up its rate gets the time to wait; the rest of
its bucket is `requests_left` at `counted_at_ms`. The time of its last use is recorded once a minute. `shown` is the
digest of the secret that came with it: a caller that knows only the id of a token cannot use up its rate. ]]

-- How long a token has to wait; 0 if it may go on, and has one request less.
local function consume_request(key, own, rate)
  local size = tonumber(own[3] ~= '' and own[3] or burst)
  local left = math.min(size, tonumber(own[4] or size) + math.max(0, now - tonumber(own[5] or now)) * rate)
  if left < 1 then return math.ceil((1 - left) / rate) end
  call('HSET', key, 'requests_left', string.format('%.6f', left - 1), 'counted_at_ms', stamp)
  return 0
end

-- Whether its numbers are damaged: such a token is unknown, and does not affect the other tokens of the call.
local function is_damaged(f)
  for at = 6, 12 do
    local is_unset = not f[at] or f[at] == '' and at ~= 7 and at < 11
    local number = not is_unset and (tonumber(f[at]) or -1)
    if number and not (number >= 0 and number < 2 ^ 53) then return true end
  end
  return f[8] and f[8] ~= '' and not ((tonumber(f[9]) or 0) > 0 and tonumber(f[10]))
end

local reply = {}
for token, shown in next_row do
  local key = key_token(token)
  local f = call('HMGET', key, 'name', 'kind', 'digest', 'scopes', 'queues', 'expires_at_ms', 'used_at_ms', 'units',
    'per_ms', 'burst', 'requests_left', 'counted_at_ms')
  if is_damaged(f) then f = {} end
  local wait = ''
  if f[3] == shown then
    local own = { f[8], f[9], f[10], f[11] or nil, f[12] or nil }
    local rate = own[1] ~= '' and own[1] / own[2] or units ~= '' and units / per_ms
    wait = rate and consume_request(key, own, rate) or 0
    if now - tonumber(f[7] or 0) >= TOKEN_USED_MS then call('HSET', key, 'used_at_ms', stamp) end
  end
  for at = 1, 5 do reply[#reply + 1] = f[at] or '' end
  reply[#reply + 1] = f[3] and f[6] ~= '' and tonumber(f[6]) <= now and '1' or ''
  reply[#reply + 1] = wait
end
return reply
