"""wakaq: a minimal list queue, one forked child per unit of concurrency."""

import logging
import os
import sys

from producing import HOST, PORT, Producer, crash_body, record

META = {
    "name": "wakaq",
    "packages": ["wakaq", "hiredis"],
    "module": "peer_wakaq",
    "variants": {"wakaq": {"profile": "fast"}},
    "dist": "wakaq",
    "settings": "concurrency=1 child, hiredis, log level WARNING; no results (has none)",
    "durable": "none documented (a job is popped before it runs)",
    "retention": "nothing kept",
}

from wakaq import WakaQ  # noqa: E402

app = WakaQ(
    queues=["q"],
    host=HOST,
    port=PORT,
    concurrency=1,
    worker_log_level=logging.WARNING,
    worker_log_file=os.devnull,
)


@app.task
def noop(i):
    record(i)


@app.task
def crash(i):
    crash_body(i)


class P(Producer):
    def one(self, i):
        noop.delay(i)

    def crash(self, i):
        crash.delay(i)


def make_producer():
    return P()


def worker():
    os.execv(
        sys.executable,
        [sys.executable, "-c", "from wakaq.cli import worker; worker()", "--app=peer_wakaq.app"],
    )
