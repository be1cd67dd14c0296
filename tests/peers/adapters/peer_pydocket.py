"""pydocket (docket): streams + Lua, asyncio."""

import asyncio
from datetime import timedelta

from producing import PROFILE, URL, Producer, crash_body_async, record, use_uvloop

META = {
    "name": "pydocket",
    "packages": ["pydocket", "hiredis", "uvloop"],
    "module": "peer_pydocket",
    "variants": {
        "pydocket": {"profile": "fast"},
        "pydocket-default": {"profile": "default", "n_drain": 400, "skip": ["crash", "enqueue"]},
    },
    "dist": "pydocket",
    "settings": (
        "concurrency 50, minimum_check_interval 5 ms (its defaults, 10 and 250 ms, cap it at 40/s), "
        "max_connections=200, hiredis, uvloop; state+result 15 min (default)"
    ),
    "durable": "redelivery_timeout=5 s",
    "retention": "run hash + result 900 s",
}


async def noop(i: int) -> int:
    record(i)
    return i


async def crash(i: int) -> int:
    await crash_body_async(i)
    return i


class P(Producer):
    has_bulk = True

    async def open(self):
        from docket import Docket

        self.cm = Docket(name="bench", url=URL)
        self.d = await self.cm.__aenter__()
        self.d.register(noop)
        self.d.register(crash)

    async def one(self, i):
        await self.d.add(noop)(i)

    async def bulk(self, ids):
        await self.d.add_many([self.d.call(noop)(i) for i in ids])

    async def crash(self, i):
        await self.d.add(crash)(i)

    async def close(self):
        await self.cm.__aexit__(None, None, None)


def make_producer():
    return P()


async def _run():
    from docket import Docket, Worker

    kw = {}
    if PROFILE != "default":
        kw = {"concurrency": 50, "minimum_check_interval": timedelta(milliseconds=5)}
    if PROFILE == "durable":
        kw["redelivery_timeout"] = timedelta(seconds=5)
    url = URL if PROFILE == "default" else URL + "?max_connections=200"
    async with Docket(name="bench", url=url) as d:
        d.register(noop)
        d.register(crash)
        async with Worker(d, **kw) as w:
            await w.run_forever()


def worker():
    use_uvloop()
    asyncio.run(_run())
