"""celery on its Redis broker."""

import os
import sys

from producing import PROFILE, URL, Producer, crash_body, record

META = {
    "name": "celery",
    "packages": ["celery[redis]", "hiredis"],
    "module": "peer_celery",
    "variants": {
        "celery": {"profile": "fast", "n_drain": 6000},
        "celery-solo": {"profile": "solo", "n_drain": 8000, "skip": ["enqueue", "crash"]},
    },
    "dist": "celery",
    "settings": (
        "prefork -c 1 (celery-solo: --pool solo), worker_prefetch_multiplier=128, --without-gossip "
        "--without-mingle --without-heartbeat, hiredis; no result backend (default)"
    ),
    "durable": "acks_late, reject_on_worker_lost, visibility_timeout=10",
    "retention": "nothing kept",
}

from celery import Celery  # noqa: E402

app = Celery("peer_celery", broker=URL)
app.conf.broker_connection_retry_on_startup = True
if PROFILE != "default":
    app.conf.worker_prefetch_multiplier = 128
if PROFILE == "durable":
    app.conf.task_acks_late = True
    app.conf.task_reject_on_worker_lost = True
    app.conf.broker_transport_options = {"visibility_timeout": 10}


@app.task
def noop(i):
    record(i)
    return i


@app.task
def crash(i):
    crash_body(i)
    return i


class P(Producer):
    def one(self, i):
        noop.delay(i)

    def crash(self, i):
        crash.delay(i)


def make_producer():
    return P()


def worker():
    args = [sys.executable, "-m", "celery", "-A", "peer_celery", "worker", "-l", "WARNING", "-c", "1"]
    args += ["--pool", "solo" if PROFILE == "solo" else "prefork"]
    if PROFILE != "default":
        args += ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    os.execv(sys.executable, args)
