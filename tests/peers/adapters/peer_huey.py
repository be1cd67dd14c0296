"""huey: Redis lists, BRPOP, worker threads."""

import sys

from producing import HOST, PORT, PROFILE, Producer, crash_body, record

META = {
    "name": "huey",
    "packages": ["huey", "redis", "hiredis"],
    "module": "peer_huey",
    "variants": {"huey": {"profile": "fast"}},
    "dist": "huey",
    "settings": "RedisHuey blocking, -k thread -w 2, --quiet, hiredis; results stored (default)",
    "durable": "none documented (a job is popped before it runs)",
    "retention": "result for ever, until read",
}

from huey import RedisHuey  # noqa: E402

huey = RedisHuey("bench", host=HOST, port=PORT)


@huey.task()
def noop(i):
    record(i)
    return i


@huey.task()
def crash(i):
    crash_body(i)
    return i


class P(Producer):
    def one(self, i):
        noop(i)

    def crash(self, i):
        crash(i)


def make_producer():
    return P()


def worker():
    w = "1" if PROFILE == "default" else "2"
    from huey.bin.huey_consumer import consumer_main

    sys.argv = ["huey_consumer", "peer_huey.huey", "-k", "thread", "-w", w, "--quiet"]
    consumer_main()
