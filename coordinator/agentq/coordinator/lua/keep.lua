--[[ keep: ask to be the keeper of the duties, or to stay it.
KEYS   base
ARGV   now_ms owner lasts_ms
REPLY  [1 if they are the caller's to do, or 0]
VERBS
FLAGS  allow-oom ]]

local keeper = call('GET', key_keeper())
if keeper and keeper ~= owner then
  -- Who keeps them may have died before the server's clock was set back: no promise lasts longer than a new one.
  call('PEXPIRE', key_keeper(), lasts_ms, 'LT')
  return 0
end
call('SET', key_keeper(), owner, 'PX', lasts_ms)
return 1
