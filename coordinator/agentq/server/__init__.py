"""The HTTP server: API, events, webhooks and the socket of remote workers, for clients that do not reach Redis
themselves."""
