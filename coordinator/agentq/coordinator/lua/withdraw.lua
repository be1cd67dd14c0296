--[[ withdraw: take a job out of an RQ queue, wherever it waits.
KEYS   base
ARGV   now_ms queue source job
REPLY  number of times that it waited there
VERBS  submit unblock skip cancel wake
FLAGS  allow-oom
USES   planning limiting waiting turns ending merging rq ]]

local gone = call('LREM', source, 1, job)
if gone == 0 then gone = call('LREM', key_rq_arrived(queue), 1, job) end
local holder = holder_of('rq:' .. job)
if not holder then return gone end
local follower = call('HGET', key_run(holder), 'follower')
for _, id in ipairs({ follower or holder, holder }) do
  if call('HEXISTS', key_rq_jobs(queue), id) == 1 and take_back(id, 'removed from the queue') then gone = gone + 1 end
end
return gone
