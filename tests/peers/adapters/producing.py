"""What every adapter uses: where the server is, how a job says that it began, and how a producer does as it is told.

It runs inside the environment of the peer, with the standard library only. A job calls record(i) once: 16 bytes, its
number and the wall clock, appended to one file. O_APPEND makes that atomic among threads and processes. So executions,
duplicates, losses and starts are counted without a question to the server.
"""

import asyncio
import inspect
import json
import logging
import os
import random
import struct
import sys
import time

HOST = "127.0.0.1"
PORT = int(os.environ.get("BENCH_PORT", "0"))
URL = f"redis://{HOST}:{PORT}/0"
PROFILE = os.environ.get("BENCH_PROFILE", "fast")  # fast, default, durable, or one of the adapter's own
RECORD = os.environ.get("BENCH_RECORD", "")
FLAG = os.environ.get("BENCH_FLAG", "")  # the job of the crash blocks until this file is there

TIMEOUT_S = 10
LANES = 32
_entry = struct.Struct("<qq")
_pack, _write, _now = _entry.pack, os.write, time.time_ns
_file = os.open(RECORD, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644) if RECORD else -1


def record(i):
    """All that a job does."""
    _write(_file, _pack(i, _now()))


def crash_body(i):
    """The job that is killed: it blocks until it has been, and not in the next worker."""
    record(i)
    while not os.path.exists(FLAG):
        time.sleep(0.05)


async def crash_body_async(i):
    record(i)
    while not os.path.exists(FLAG):
        await asyncio.sleep(0.05)


def quiet_logging():
    logging.basicConfig(level=logging.WARNING)


def use_uvloop():
    """For those who have it among their packages."""
    try:
        import uvloop
    except ImportError:
        return
    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())


class Producer:
    """What the producer of an adapter offers; all of it plain, or all of it async.

    `bulk` is the library's own call for many jobs, if it `has_bulk`. Where there is none, `concurrent` asks for 32
    calls of `one` at a time.
    """

    has_bulk = False
    concurrent = False

    def open(self):
        """Connect."""

    def one(self, i):
        """Submit the job with this number."""

    def bulk(self, ids):
        """Submit these jobs."""

    def crash(self, i):
        """Submit the job that blocks."""

    def close(self):
        """Leave."""


def run_producer(producer):
    """Do what stdin asks for, a line of JSON each, and answer each with a line."""
    use_uvloop()
    asyncio.run(_serve(producer))


async def _serve(producer):
    verbs = {"single": _single, "bulk": _bulk, "latency": _latency, "crash": _crash}
    loop = asyncio.get_running_loop()
    await _call(producer.open)
    _answer({"ready": True})
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        asked = json.loads(line)
        if asked["op"] == "quit":
            break
        _answer(await verbs[asked["op"]](producer, asked))
    await _call(producer.close)
    _answer({"bye": True})


def _answer(words):
    print(json.dumps(words), flush=True)


async def _call(verb, *arguments):
    answer = verb(*arguments)
    return await answer if inspect.isawaitable(answer) else answer


async def _single(producer, asked):
    """One by one, for a while. The two loops differ so that nobody pays for an await that it does not need."""
    one, done, budget = producer.one, 0, asked.get("budget", 60)
    begun = time.perf_counter()
    if inspect.iscoroutinefunction(one):
        for i in range(asked["start"], asked["start"] + asked["n"]):
            await one(i)
            done += 1
            if not done & 63 and time.perf_counter() - begun > budget:
                break
    else:
        for i in range(asked["start"], asked["start"] + asked["n"]):
            one(i)
            done += 1
            if not done & 63 and time.perf_counter() - begun > budget:
                break
    return {"n": done, "s": time.perf_counter() - begun}


async def _bulk(producer, asked):
    ids = range(asked["start"], asked["start"] + asked["n"])
    chunk = asked.get("chunk", 1000)
    begun = time.perf_counter()
    if producer.has_bulk:
        kind = "bulk"
        for first in range(0, len(ids), chunk):
            await _call(producer.bulk, ids[first : first + chunk])
    elif producer.concurrent:
        kind = f"concurrent-{LANES}"
        waiting = iter(ids)
        await asyncio.gather(*(_lane(producer, waiting) for _ in range(LANES)))
    else:
        kind = "none"
        for i in ids:
            await _call(producer.one, i)
    return {"n": len(ids), "s": time.perf_counter() - begun, "kind": kind}


async def _lane(producer, waiting):
    for i in waiting:
        await producer.one(i)


async def _latency(producer, asked):
    """Submit a job when the one before has begun, after a pause; the nanoseconds until each began."""
    gaps = random.Random(asked["start"])
    end = time.monotonic() + asked["budget"]
    took, lost = [], 0
    for i in range(asked["start"], asked["start"] + asked["n"]):
        if time.monotonic() > end:
            break
        time.sleep(gaps.uniform(*asked["gap"]))
        size = os.stat(RECORD).st_size
        submitted = time.time_ns()
        await _call(producer.one, i)
        began = _start_of(i, size, time.monotonic() + asked.get("timeout", TIMEOUT_S))
        if began is None:
            lost += 1
        else:
            took.append(began - submitted)
    return {"ns": took, "lost": lost}


async def _crash(producer, asked):
    await _call(producer.crash, asked["start"])
    return {}


def _start_of(i, place, deadline):
    """When a job began, as soon as the file tells; None if it does not in time."""
    with open(RECORD, "rb", buffering=0) as file:
        while time.monotonic() < deadline:
            file.seek(place)
            found = file.read(_entry.size * 64) or b""
            for number, began in _entry.iter_unpack(found[: len(found) // _entry.size * _entry.size]):
                place += _entry.size
                if number == i:
                    return began
            time.sleep(0.0003)
    return None
