"""The routes, a file for each thing that there is: runs, sessions, queues and so on."""
