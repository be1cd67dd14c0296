"""agentq as it stands in this repository: streams and Lua, function runs in persistent children of one worker."""

import os
import sys

from producing import RECORD, URL, Producer, crash_body, record

from agentq.sdk import connect, task

META = {
    "name": "agentq",
    "packages": ["REPOSITORY"],
    "module": "peer_agentq",
    "variants": {"agentq": {"profile": "default", "n_drain": 60_000}},
    "dist": "agentqueue",
    "settings": "none: the defaults of everything, one slot (default); results stored (default)",
    "durable": "none needed: the defaults start it again",
    "retention": "run + result 7 days",
}


@task
def noop(i: int) -> int:
    record(i)
    return i


@task
def crash(i: int) -> int:
    crash_body(i)
    return i


class P(Producer):
    has_bulk = True

    def open(self):
        self.client = connect(URL)

    def one(self, i):
        self.client.submit(noop, i)

    def bulk(self, ids):
        self.client.submit_many(noop, [(i,) for i in ids])

    def crash(self, i):
        self.client.submit(crash, i)

    def close(self):
        self.client.close()


def make_producer():
    return P()


def worker():
    agentq = os.path.join(os.path.dirname(sys.executable), "agentq")
    # What a worker keeps on its machine goes where the records are, and with them.
    environment = {**os.environ, "AGENTQ_URL": URL, "AGENTQ_HOME": f"{RECORD}.home"}
    os.execve(agentq, [agentq, "worker", "--queue", "default"], environment)
