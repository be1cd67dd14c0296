--[[ dialect/track_callbacks: add runs to those with a pending completion callback, or remove them.
KEYS   base
ARGV   now_ms what
ROWS   id
REPLY  ok
VERBS
FLAGS  allow-oom
`what` is `owe` or `done`. ]]

for id in next_row do
  if what == 'owe' then call('ZADD', key_pending_callbacks(), 'NX', now, id) else call('ZREM', key_pending_callbacks(), id) end
end
return 'ok'
