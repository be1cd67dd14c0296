"""What the jobs of these tests do. They leave traces in Redis, in lists that no library knows of."""

from __future__ import annotations

import os
import time
from typing import Any

from redis import Redis
from rq import Retry, get_current_job


def server() -> Redis:
    job = get_current_job()
    assert job is not None
    return Redis(connection_pool=job.connection.connection_pool)


def trace(what: str) -> None:
    server().rpush("traces", what)


def add(left: int, right: int) -> int:
    trace(f"add {left} {right}")
    return left + right


async def add_slowly(left: int, right: int) -> int:
    return left + right


def noted(word: str) -> str:
    job = get_current_job()
    assert job is not None
    trace(f"{word} {job.id} {os.environ['RQ_JOB_ID']}")
    job.meta["word"] = word
    job.save_meta()
    return word


def broken(word: str = "broken") -> None:
    trace(word)
    raise ValueError(word)


def sleepy(seconds: float = 60.0) -> str:
    trace("begun")
    time.sleep(seconds)
    trace("slept")
    return "slept"


def held_up(name: str = "gate") -> str:
    """Waits until somebody opens the gate; the first attempt only."""
    client = server()
    number = client.incr("attempts")
    trace(f"begun {number}")
    if number == 1:
        client.blpop([name], 60)
    trace(f"done {number}")
    return f"attempt {number}"


def unfinished(most: int) -> Any:
    """Asks for another try by what it returns."""
    number = int(server().incr("tries"))
    trace(f"try {number}")
    return Retry(max=most, interval=0) if number < 3 else "enough"


def unpicklable() -> Any:
    return lambda: None


def deadly() -> None:
    trace("deadly")
    os.kill(os.getpid(), 9)


def well(job: Any, connection: Any, result: Any, *_: Any) -> None:
    connection.rpush("traces", f"success {job.id} {result}")


def ill(job: Any, connection: Any, type_: Any, value: Any, _: Any) -> None:
    connection.rpush("traces", f"failure {job.id} {type_.__name__} {value}")


def halted(job: Any, connection: Any) -> None:
    connection.rpush("traces", f"stopped {job.id}")
