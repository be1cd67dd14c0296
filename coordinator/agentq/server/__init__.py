"""The HTTP server: everything that a client, a dashboard or a runner says and hears without reaching Redis itself."""
