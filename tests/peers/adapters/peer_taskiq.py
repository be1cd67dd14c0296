"""taskiq with taskiq-redis' RedisStreamBroker."""

import os
import sys

from producing import PROFILE, URL, Producer, crash_body_async, record

META = {
    "name": "taskiq",
    "packages": ["taskiq", "taskiq-redis", "hiredis", "uvloop"],
    "module": "peer_taskiq",
    "variants": {"taskiq": {"profile": "fast"}},
    "dist": "taskiq-redis",
    "settings": (
        "RedisStreamBroker + RedisAsyncResultBackend (as its README), --workers 1, --max-async-tasks 100 "
        "(default), --max-prefetch 100, hiredis, uvloop; results kept for ever, stream never trimmed (default)"
    ),
    "durable": "idle_timeout=5000, unacknowledged_lock_timeout=5",
    "retention": "result and stream entry for ever",
}


def make_broker():
    from taskiq_redis import RedisAsyncResultBackend, RedisStreamBroker

    kw = {}
    if PROFILE == "durable":
        kw = {"idle_timeout": 5000, "unacknowledged_lock_timeout": 5}
    b = RedisStreamBroker(URL, **kw).with_result_backend(RedisAsyncResultBackend(URL))

    @b.task(task_name="noop")
    async def noop(i: int) -> int:
        record(i)
        return i

    @b.task(task_name="crash")
    async def crash(i: int) -> int:
        await crash_body_async(i)
        return i

    return b, noop, crash


class P(Producer):
    concurrent = True

    async def open(self):
        self.b, self.noop, self.crashf = make_broker()
        await self.b.startup()

    async def one(self, i):
        await self.noop.kiq(i)

    async def crash(self, i):
        await self.crashf.kiq(i)

    async def close(self):
        await self.b.shutdown()


def make_producer():
    return P()


def broker_factory():
    return make_broker()[0]


def worker():
    args = [sys.executable, "-m", "taskiq", "worker", "peer_taskiq:broker_factory"]
    args += ["--workers", "1", "--log-level", "WARNING"]
    if PROFILE != "default":
        args += ["--max-prefetch", "100"]
    os.execv(sys.executable, args)
