--[[ gate: let nobody in under a key until a time; or, with a time that has passed, open it again.
KEYS   base
ARGV   now_ms limit until_ms why
REPLY  ok
VERBS  unblock
FLAGS  allow-oom
USES   planning limiting waiting turns ending merging
Who has room goes on. The gate opens by itself. ]]

shut(limit, until_ms, why)
return 'ok'
