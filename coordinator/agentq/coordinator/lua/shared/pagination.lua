--[[ Pages of sorted sets scored by time, newest first. ]]

-- Up to `limit` names from a cursor on, which is `at_ms name`, and the cursor after them or ''.
local function read_page(key, before, limit)
  local at, last = string.match(before, '^(%d+) (.*)$')
  -- Of those of the same millisecond, some stood on the page before.
  local skip, names = 0, {}
  for _, name in ipairs(at and call('ZRANGE', key, at, at, 'BYSCORE', 'REV') or {}) do
    if name >= last then skip = skip + 1 end
  end
  local found = call('ZRANGE', key, at or '+inf', '-inf', 'BYSCORE', 'REV', 'LIMIT', skip, limit, 'WITHSCORES')
  for place = 1, #found, 2 do names[#names + 1] = found[place] end
  if #names < limit then return names, '' end
  return names, string.format('%.0f', tonumber(found[#found])) .. ' ' .. names[limit]
end
