--[[ duty/lock: acquire, renew or give up the lock of the duties.
KEYS   base
ARGV   now_ms owner ttl_ms gap_ms
REPLY  [1 if the duties are the caller's to do, or 0]
VERBS
FLAGS  allow-oom
A `ttl_ms` of 0 releases the lock. Each call is evidence that the server could be reached: if the last one is at most
`gap_ms` ago, the reapers' watch continues, whichever process is the keeper. The last caller that was refused is the
standby: it is woken when the keeper releases the lock. A worker that has left, or was declared lost, does not get the
lock. ]]

local last_tick_ms = tonumber(call('HGET', key_reaper_watch(), 'tick_ms') or nil)
if last_tick_ms and math.abs(now - last_tick_ms) <= tonumber(gap_ms) then call('HSET', key_reaper_watch(), 'tick_ms', now) end
local state = call('HGET', key_worker(owner), 'state')
if ttl_ms == '0' or state == 'gone' or state == 'lost' then
  release_duties(owner)
  return 0
end
local current_owner = call('GET', key_duty_owner())
if current_owner and current_owner ~= owner then
  -- The keeper may have died before the server's clock was set back: no lock lasts longer than a new one.
  call('PEXPIRE', key_duty_owner(), ttl_ms, 'LT')
  call('HSET', key_reaper_watch(), 'standby', owner)
  return 0
end
call('SET', key_duty_owner(), owner, 'PX', ttl_ms)
return 1
