"""The routes of the API, one file per resource: runs, sessions, queues and so on."""
