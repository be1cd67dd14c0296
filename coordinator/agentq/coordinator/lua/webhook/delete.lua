--[[ webhook/delete: delete a webhook, with its log.
KEYS   base
ARGV   now_ms name
REPLY  ok, not_found
VERBS
FLAGS  allow-oom ]]

if call('ZREM', key_webhooks(), name) == 0 then return 'not_found' end
call('UNLINK', key_webhook(name), key_deliveries(name), key_redeliveries(name))
return 'ok'
