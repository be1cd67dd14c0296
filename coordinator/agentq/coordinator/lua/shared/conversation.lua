--[[ Conversations: what an attempt of an agent starts from, and what it records. A conversation belongs to its run, or
to the session if the run is a turn.

Sums are texts of six numbers: micro-dollars, attempts of unknown cost, tokens read, tokens read from a cache, tokens
written, turns of the model. ]]

-- The run that an attempt holds; or nil and the refusal if it does not.
local function load_for_attempt(id, fence)
  local run = load(id)
  if not run then return nil, 'not_found' end
  if run.fence ~= fence then return nil, 'fenced' end
  if not is_held(run) then return nil, 'wrong_state ' .. run.state end
  return run
end

-- The keys of a run's conversation and its transcript.
local function conversation_keys(id, run)
  if run.turn_of then return key_session(run.turn_of), key_session_transcript(run.turn_of) end
  return run.key, key_transcript(id)
end

local function parse_sums(text)
  local sums = {}
  for number in string.gmatch(text or '', '%S+') do sums[#sums + 1] = tonumber(number) end
  for at = 1, 6 do sums[at] = sums[at] or 0 end
  return sums
end

local function format_sums(sums)
  local words = {}
  for at = 1, 6 do words[at] = string.format('%.0f', sums[at]) end
  return table.concat(words, ' ')
end

local function add_sums(sums, others, sign)
  local total = {}
  for at = 1, 6 do total[at] = sums[at] + sign * others[at] end
  return total
end

-- The spending that the present attempt has recorded.
local function spending_of_attempt(run, fence)
  local own, text = string.match(call('HGET', run.key, 'attempt_spending') or '', '^(%S+) (.*)$')
  return parse_sums(own == fence and text or nil)
end
