"""arq: sorted set, polled."""

from producing import HOST, PORT, PROFILE, Producer, crash_body_async, record, use_uvloop

META = {
    "name": "arq",
    "packages": ["arq", "hiredis", "uvloop"],
    "module": "peer_arq",
    "variants": {
        "arq": {"profile": "fast"},
        "arq-default": {"profile": "default", "n_drain": 1000, "n_latency": 12, "skip": ["crash", "enqueue"]},
    },
    "dist": "arq",
    "settings": (
        "max_jobs=32, poll_delay=0.01 (default 0.5 caps it), hiredis, uvloop policy, log level WARNING; results "
        "3600 s (default)"
    ),
    "durable": "job_timeout=10 (the in-progress key then lives 20 s)",
    "retention": "result 3600 s",
}


async def noop(_ctx, i):
    record(i)
    return i


async def crash(_ctx, i):
    await crash_body_async(i)
    return i


def redis_settings():
    from arq.connections import RedisSettings

    return RedisSettings(host=HOST, port=PORT)


class P(Producer):
    concurrent = True

    async def open(self):
        from arq import create_pool

        self.pool = await create_pool(redis_settings())

    async def one(self, i):
        await self.pool.enqueue_job("noop", i)

    async def crash(self, i):
        await self.pool.enqueue_job("crash", i)

    async def close(self):
        await self.pool.aclose()


def make_producer():
    return P()


def worker():
    from arq.worker import Worker

    use_uvloop()
    kw = {}
    if PROFILE == "fast":
        kw = {"max_jobs": 32, "poll_delay": 0.01}
    if PROFILE == "durable":
        kw = {"max_jobs": 32, "poll_delay": 0.01, "job_timeout": 10}
    Worker(functions=[noop, crash], redis_settings=redis_settings(), **kw).run()
