--[[ worker/finish_and_claim: report ended function attempts, and claim more function runs for their worker.
KEYS   base
ARGV   now_ms worker epoch caller nonce calls random lanes
ROWS   id fence class outcome delay_ms
REPLY  [ok or evicted or draining or lease_expired, revision, answers, place, answer, ..., run, fence, lane, spec, run, ...]
VERBS  finish fail claim block cancel expire unblock skip wake
FLAGS  allow-oom
USES   plans limits waits session_turns end_run merge_queue claim_runs
What finish, fail and claim do, in one call for a whole batch. An attempt of class `ok` is finished, any other fails.
Only answers other than `ok` are told, each after the place of its row: `ok STATE` of what failed, or not_found, fenced,
wrong_state STATE. The first word says why nothing was claimed. `lanes` are names, one on a line. A worker can have one
call in flight for each `caller`. Sent again after a lost reply it changes nothing and gives the same runs again. ]]

local answers, place = {}, 0
for id, fence, class, outcome, delay_ms in next_row do
  local verb = class == 'ok' and 'finish' or 'fail'
  local run, word = load_held(id, fence, verb)
  if run then count_ended(run) end
  if run and verb == 'finish' then
    end_run(id, run, 'finish', 'completed', '', outcome)
  elseif run then
    -- One throw for all; each has its own share of chance, so that they are not all tried again at the same moment.
    word = fail_attempt(id, run, fence, class, outcome, (random + place * 0.618034) % 1, delay_ms)
  elseif word == 'ok' and verb == 'fail' then
    word = 'ok ' .. call('HGET', key_run(id), 'state')
  end
  if word and word ~= 'ok' then answers[#answers + 1], answers[#answers + 2] = place, word end
  place = place + 1
end

local wanted = tonumber(calls)
local word = wanted > 0 and refuse_claim(worker, epoch) or 'ok'
local reply, is_repeat = { word, lanes_revision() }, nil
if wanted > 0 and word == 'ok' then reply, is_repeat = start_claim_reply(worker, 'last_exchange:' .. caller, nonce) end
table.insert(reply, 3, #answers / 2)
for at, answer in ipairs(answers) do table.insert(reply, 3 + at, answer) end
if wanted == 0 or word ~= 'ok' or is_repeat then return reply end
local lanes_of_functions = {}
for lane in string.gmatch(lanes, '[^\n]+') do lanes_of_functions[#lanes_of_functions + 1] = lane end
claim_from_lanes(lanes_of_functions, wanted, 'low_priority_calls', worker, nonce, reply)
record_claims(worker, 'last_exchange:' .. caller, nonce)
return reply
