--[[ token/revoke: revoke a token of the server at once.
KEYS   base
ARGV   now_ms token
REPLY  ok, not_found
VERBS
FLAGS  allow-oom ]]

call('ZREM', key_tokens(), token)
return call('DEL', key_token(token)) == 1 and 'ok' or 'not_found'
