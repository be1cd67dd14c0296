--[[ session/list: list sessions: those named, or a page of all, last used first.
KEYS   base
ARGV   now_ms before count
ROWS   name
REPLY  [cursor or '', session, fields as JSON, first of its line or '', turns in its line, ...]
VERBS
FLAGS  no-writes
USES   pagination
`before` is a cursor, from where a page goes on: `used_at_ms name`. ]]

local names, cursor = {}, ''
for name in next_row do names[#names + 1] = name end
if #names == 0 then names, cursor = read_page(key_sessions(), before, tonumber(count)) end

local page = { cursor }
for _, name in ipairs(names) do
  local flat, fields = call('HGETALL', key_session(name)), {}
  for at = 1, #flat, 2 do fields[flat[at]] = flat[at + 1] end
  if #flat > 0 then
    local line = key_session_turns(name)
    for _, value in ipairs({ name, json(fields), call('ZRANGE', line, 0, 0)[1] or '', call('ZCARD', line) }) do
      page[#page + 1] = value
    end
  end
end
return page
