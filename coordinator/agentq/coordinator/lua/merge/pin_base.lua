--[[ merge/pin_base: pin the commit that a base stands for in a plan: the first commit named holds for all tasks.
KEYS   base
ARGV   now_ms id fence place base_commit
REPLY  [ok, commit or ''], not_found, fenced, wrong_state STATE
VERBS
FLAGS  allow-oom
USES   conversation
`place` is a repository and a base in it, as one word that is opaque here. Without a commit it only tells what was named
before. A run without a plan is told what it named. No verb: it changes no state and tells no event. ]]

local run, word = load_for_attempt(id, fence)
if not run then return word end
if not run.plan or call('EXISTS', key_plan(run.plan)) == 0 then return { 'ok', base_commit } end
if base_commit ~= '' then call('HSETNX', key_plan(run.plan), 'base ' .. place, base_commit) end
return { 'ok', call('HGET', key_plan(run.plan), 'base ' .. place) or '' }
