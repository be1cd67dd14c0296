--[[ attempt/start: report that the worker starts these attempts: it prepares, executes or merges them.
KEYS   base
ARGV   now_ms
ROWS   id fence
REPLY  per run: ok, not_found, fenced, stopping, wrong_state STATE
VERBS  start
FLAGS  allow-oom
`stopping` means that the run is to be cancelled: it must not start, and the worker confirms the stop with `fail`. ]]

local words = {}
for id, fence in next_row do
  local run, word = load_held(id, fence, 'start')
  if run and run.stop_at_ms then
    word = 'stopping'
  elseif run then
    transition(id, run, 'start', 'running', '', 'started_at_ms', stamp)
    word = 'ok'
  end
  words[#words + 1] = word
end
return words
