--[[ attempt/append_log: append output of an attempt to the log of its run.
KEYS   base
ARGV   now_ms id fence number
ROWS   stream text
REPLY  ok, not_found, fenced, wrong_state STATE
VERBS
FLAGS
No verb: it changes no state and appends no event. The worker numbers its calls from 1; a call that is not newer than
the newest entry of its attempt is `ok` and changes nothing. Each entry has the number of bytes logged before it,
`from_byte`, so that the size of a gap is known: the log is capped, and its oldest entries are trimmed. ]]

local function parse_log_entry(entry)
  local f = entry[2]
  return { fence = f[2], number = tonumber(f[4]), from_byte = tonumber(f[8]), text = f[10] }
end

local function trim_log(key, at)
  call('XTRIM', key, 'MAXLEN', LOG_ENTRIES)
  local oldest = call('XRANGE', key, '-', '+', 'COUNT', 1)
  while oldest[1] do
    for _, entry in ipairs(oldest) do
      if at - parse_log_entry(entry).from_byte <= LOG_BYTES then return call('XTRIM', key, 'MINID', entry[1]) end
    end
    call('XTRIM', key, 'MINID', oldest[#oldest][1])
    oldest = call('XRANGE', key, '-', '+', 'COUNT', 20)
  end
end

local run = load(id)
if not run then return 'not_found' end
if run.fence ~= fence then return 'fenced' end

local key, at = key_log(id), 0
local newest = call('XREVRANGE', key, '+', '-', 'COUNT', 1)[1]
if newest then
  local entry = parse_log_entry(newest)
  if entry.fence == fence and tonumber(number) <= entry.number then return 'ok' end
  at = entry.from_byte + #entry.text
end
if not is_held(run) then return 'wrong_state ' .. run.state end

for stream, text in next_row do
  call('XADD', key, '*', 'fence', fence, 'number', number, 'stream', stream, 'from_byte', string.format('%.0f', at), 'text', text)
  at = at + #text
end
trim_log(key, at)
return 'ok'
