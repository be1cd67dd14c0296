--[[ worker/heartbeat: renew the lease of a worker, compare the runs that it holds, and return its orders.
KEYS   base
ARGV   now_ms worker epoch lease_ms grace_ms random applied
ROWS   run fence
REPLY  [ok, state, revision, number of fenced runs, run, fence, ..., order id, order, run, fence, detail, ...], evicted
VERBS  release lose unblock skip cancel wake
FLAGS  allow-oom
USES   plans limits waits session_turns end_run merge_queue
`applied` lists the orders carried out, with commas; they are deleted, all others come again. What an entry of the inbox
does not say is empty in the reply, so that one that is no order reaches the worker as such. Fenced runs are those named
here that are no longer this worker's: it kills them and writes nothing more. A run that it holds and does not name for
`grace_ms` goes on elsewhere: a reply was lost on its way, or the worker has forgotten it. One that it claimed
START_DEADLINE_MS ago and has not started is lost, at the cost of a crash, so that what cannot begin anywhere has an
end. Its time begins anew where the clock may have been set meanwhile: if the last heartbeat is more than a lease ago,
or in the future. ]]

local record = call('HMGET', key_worker(worker), 'epoch', 'state', 'missing_at_ms', 'seen_at_ms')
if record[1] ~= epoch or record[2] == 'lost' or record[2] == 'gone' then return 'evicted' end
local is_clock_steady = math.abs(now - (record[4] or now)) <= tonumber(lease_ms)
call('SET', key_worker_lease(worker), now + lease_ms, 'PX', lease_ms)
call('ZADD', key_workers(), now + lease_ms, worker)
call('HSET', key_worker(worker), 'seen_at_ms', now)
if record[3] then call('HDEL', key_worker(worker), 'missing_at_ms') end
for order in string.gmatch(applied, '[^,]+') do
  call('XACK', key_worker_inbox(worker), 'workers', order)
  call('XDEL', key_worker_inbox(worker), order)
end

local holds, flat = {}, call('HGETALL', key_worker_runs(worker))
for at = 1, #flat, 2 do holds[flat[at]] = flat[at + 1] end

local function reclaim_unnamed_run(id, fence, why)
  local run = load(id)
  if not (run and is_held(run) and run.fence == fence) then return call('HDEL', key_worker_runs(worker), id) end
  if run.state == 'claimed' then return release_run(id, run, why) end
  lose_attempt(id, run, random, why)
end

local function lose_if_start_late(id)
  local f = call('HMGET', key_run(id), 'state', 'claimed_at_ms')
  local waited = f[1] == 'claimed' and now - f[2] or 0
  if waited >= 0 and waited < START_DEADLINE_MS then return false end
  if waited < 0 or not is_clock_steady then
    call('HSET', key_run(id), 'claimed_at_ms', stamp)
    return false
  end
  lose_attempt(id, load(id), random, 'it was claimed and not started', true)
  return true
end

local fenced_runs = {}
for run, fence in next_row do
  local hold = holds[run]
  local own, marked = string.match(hold or '', '^(%S+) ?(%d*)$')
  if own == fence then holds[run] = nil end
  if own ~= fence or lose_if_start_late(run) then
    fenced_runs[#fenced_runs + 1] = run
    fenced_runs[#fenced_runs + 1] = fence
  elseif marked ~= '' then
    call('HSET', key_worker_runs(worker), run, fence)
  end
end

for id, hold in pairs(holds) do
  local fence, marked = string.match(hold, '^(%S+) ?(%d*)$')
  if marked == '' or tonumber(marked) > now then
    call('HSET', key_worker_runs(worker), id, fence .. ' ' .. stamp)
  elseif now - marked >= tonumber(grace_ms) then
    reclaim_unnamed_run(id, fence, 'the worker does not know of it')
  end
end

local reply = { 'ok', record[2], lanes_revision(), #fenced_runs / 2 }
for _, value in ipairs(fenced_runs) do reply[#reply + 1] = value end
for _, entry in ipairs(call('XRANGE', key_worker_inbox(worker), '-', '+', 'COUNT', 100)) do
  local f = { order = '', run = '', fence = '', detail = '' }
  for at = 1, #entry[2], 2 do f[entry[2][at]] = entry[2][at + 1] end
  for _, value in ipairs({ entry[1], f.order, f.run, f.fence, f.detail }) do reply[#reply + 1] = value end
end
return reply
