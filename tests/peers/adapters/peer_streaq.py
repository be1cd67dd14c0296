"""streaq: coredis, streams, one Redis function library; asyncio + uvloop."""

from producing import PROFILE, URL, Producer, crash_body_async, record

META = {
    "name": "streaq",
    "packages": ["streaq", "uvloop"],
    "module": "peer_streaq",
    "variants": {"streaq": {"profile": "fast"}},
    "dist": "streaq",
    "settings": (
        "concurrency 32 (its own benchmark), default prefetch, use_uvloop, coredis.Config.optimized, silent "
        "tasks; results 300 s (default)"
    ),
    "durable": "idle_timeout=5",
    "retention": "result 300 s",
}


def build():
    import coredis
    from streaq import Worker

    coredis.Config.optimized = True
    kw = {}
    if PROFILE == "durable":
        kw["idle_timeout"] = 5
    w = Worker(
        redis_url=URL,
        concurrency=32,
        anyio_kwargs={"use_uvloop": True},
        **kw,
    )

    @w.task(silent=True)
    async def noop(i: int) -> int:
        record(i)
        return i

    @w.task(silent=True)
    async def crash(i: int) -> int:
        await crash_body_async(i)
        return i

    return w, noop, crash


class P(Producer):
    has_bulk = True

    async def open(self):
        self.w, self.noop, self.crashf = build()
        self.cm = self.w.__asynccontextmanager__()
        await self.cm.__aenter__()

    async def one(self, i):
        await self.noop.enqueue(i)

    async def bulk(self, ids):
        await self.w.enqueue_many([self.noop.enqueue(i) for i in ids])

    async def crash(self, i):
        await self.crashf.enqueue(i)

    async def close(self):
        await self.cm.__aexit__(None, None, None)


def make_producer():
    return P()


def worker():
    build()[0].run_sync()
