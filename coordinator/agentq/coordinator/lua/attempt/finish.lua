--[[ attempt/finish: report that these attempts completed.
KEYS   base
ARGV   now_ms
ROWS   id fence outcome
REPLY  per run: ok, not_found, fenced, wrong_state STATE
VERBS  finish unblock skip cancel wake
FLAGS  allow-oom
USES   plans limits waits session_turns end_run merge_queue
A run that was to be stopped and has finished all the same is completed: the work is in. ]]

local words = {}
for id, fence, outcome in next_row do
  local run, word = load_held(id, fence, 'finish')
  if run then
    count_ended(run)
    end_run(id, run, 'finish', 'completed', '', outcome)
    word = 'ok'
  end
  words[#words + 1] = word
end
return words
