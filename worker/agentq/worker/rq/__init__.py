"""RQ on agentq: RQ's jobs, producers and tools, with agentq's leases. See the README beside this file.

`Queue` is for producers, and `Worker` for who starts workers with RQ's own command.
"""

from agentq.worker.rq.queue import Queue as Queue
from agentq.worker.rq.worker import Worker as Worker
