"""saq on Redis lists."""

from producing import PROFILE, URL, Producer, crash_body_async, record, use_uvloop

META = {
    "name": "saq",
    "packages": ["saq[redis,hiredis]", "uvloop", "typing_extensions"],
    "module": "peer_saq",
    "variants": {"saq": {"profile": "fast"}},
    "dist": "saq",
    "settings": "concurrency 32, hiredis, uvloop policy, log level WARNING; job hash+result kept 600 s (default)",
    "durable": "Job(retries=5, heartbeat=5), timers sweep=5",
    "retention": "job + result 600 s",
}


async def noop(_ctx, *, i):
    record(i)
    return i


async def crash(_ctx, *, i):
    await crash_body_async(i)
    return i


def queue():
    from saq import Queue

    return Queue.from_url(URL)


class P(Producer):
    concurrent = True

    async def open(self):
        self.q = queue()
        await self.q.connect()

    async def one(self, i):
        await self.q.enqueue("noop", i=i)

    async def crash(self, i):
        kw = {"retries": 5, "heartbeat": 5} if PROFILE == "durable" else {}
        await self.q.enqueue("crash", i=i, **kw)

    async def close(self):
        await self.q.disconnect()


def make_producer():
    return P()


def settings():
    s = {"queue": queue(), "functions": [noop, crash], "concurrency": 32}
    if PROFILE == "durable":
        s["timers"] = {"sweep": 5}
    return s


def worker():
    from saq.worker import start

    use_uvloop()
    start("peer_saq.settings")
