"""dramatiq with its Redis broker (Lua + lists, threads)."""

import os
import sys

from producing import HOST, PORT, PROFILE, Producer, crash_body, record

META = {
    "name": "dramatiq",
    "packages": ["dramatiq[redis]", "hiredis"],
    "module": "peer_dramatiq",
    "variants": {
        "dramatiq": {"profile": "fast"},
        "dramatiq-default": {"profile": "default", "n_drain": 8000, "skip": ["crash", "enqueue"]},
    },
    "dist": "dramatiq",
    "settings": (
        "-p 1 -t 2, dramatiq_queue_prefetch=1000 (defaults: 8 threads, prefetch 16), hiredis; no result backend "
        "(default)"
    ),
    "durable": "heartbeat_timeout=5000, maintenance_chance=1000000",
    "retention": "nothing kept",
}

import dramatiq  # noqa: E402  (its CLI looks for the actors at module level)
from dramatiq.brokers.redis import RedisBroker  # noqa: E402

_kw = {"heartbeat_timeout": 5000, "maintenance_chance": 1_000_000} if PROFILE == "durable" else {}
broker = RedisBroker(host=HOST, port=PORT, **_kw)
dramatiq.set_broker(broker)


@dramatiq.actor
def noop(i):
    record(i)


@dramatiq.actor
def crash(i):
    crash_body(i)


class P(Producer):
    def one(self, i):
        noop.send(i)

    def crash(self, i):
        crash.send(i)


def make_producer():
    return P()


def worker():
    threads = "8"
    if PROFILE == "fast":
        threads = "2"
        os.environ["dramatiq_queue_prefetch"] = "1000"  # noqa: SIM112
    os.execv(
        sys.executable,
        [sys.executable, "-m", "dramatiq", "peer_dramatiq", "-p", "1", "-t", threads],
    )
