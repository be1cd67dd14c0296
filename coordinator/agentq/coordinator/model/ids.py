"""Ids of runs, made by the submitter, and nonces of attempts, calls and workers.

    run_01k9zq3c5 00 7m2x4c8r1tnq
        time      │  random, 60 bits
                  partition

They sort by time, name their partition, and are safe in URLs and file names of any system. The maker of an id can send
the same submit twice: the second one finds the first. What a schedule makes has an id that follows from schedule and
tick, and of a task from its plan, each with a word that only the store has.
"""

from __future__ import annotations

import os
import re
from hashlib import blake2b

from agentq.coordinator.bounds import PARTITIONS
from agentq.coordinator.clock import wall_ms
from agentq.coordinator.errors import Invalid, quote_input

_DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"
_DIGIT_TRIPLES = [a + b + c for a in _DIGITS for b in _DIGITS for c in _DIGITS]
_RUN_ID = re.compile(rf"run_[{_DIGITS}]{{23}}")
_TIME_SLICE = slice(4, 13)
_PARTITION_SLICE = slice(13, 15)
_PARTITION_NUMBERS = {triple[1:]: number for number, triple in enumerate(_DIGIT_TRIPLES[:PARTITIONS])}
RUN_ID_LENGTH = 27


def new_run_id(partition: int = 0, at_ms: int | None = None) -> str:
    """Make the id of a new run."""
    return _format_run_id(partition, wall_ms() if at_ms is None else at_ms, int.from_bytes(os.urandom(8)))


def new_run_ids(count: int, partition: int = 0) -> list[str]:
    """Make the ids of many new runs at once."""
    beginning = f"run_{_encode_digits(wall_ms())}{_DIGIT_TRIPLES[partition][1:]}"
    chances = iter(memoryview(os.urandom(8 * count)).cast("Q"))
    triples = _DIGIT_TRIPLES
    return [
        f"{beginning}{triples[chance >> 45 & 0x7FFF]}{triples[chance >> 30 & 0x7FFF]}"
        f"{triples[chance >> 15 & 0x7FFF]}{triples[chance & 0x7FFF]}"
        for chance in chances
    ]


def _format_run_id(partition: int, at_ms: int, chance: int) -> str:
    triples = _DIGIT_TRIPLES
    beginning = f"run_{_encode_digits(at_ms)}{triples[partition][1:]}"
    return f"{beginning}{triples[chance >> 45 & 0x7FFF]}{_encode_digits(chance)}"


def make_tick_run_id(partition: int, at_ms: int, schedule: str) -> str:
    """The id of the run that a revision of a schedule makes at a tick: the same from every scheduler."""
    chance = int.from_bytes(blake2b(f"{schedule} {at_ms}".encode(), digest_size=8).digest())
    return _format_run_id(partition, at_ms, chance)


def make_task_run_id(partition: int, at_ms: int, place: int, plan: str, task: str) -> str:
    """The id of the run of a task: the same in every call. The ids of a plan sort by the tasks' places in it."""
    chance = int.from_bytes(blake2b(f"{plan} {task}".encode(), digest_size=8).digest())
    return _format_run_id(partition, at_ms, place << 36 | chance & (1 << 36) - 1)


def run_id_prefix(at_ms: int) -> str:
    """The prefix of the ids of runs made at a time; a bound for lists by time."""
    return "run_" + _encode_digits(at_ms)


def _encode_digits(number: int) -> str:
    """The low 45 bits of a number, as nine digits."""
    return (
        _DIGIT_TRIPLES[number >> 30 & 0x7FFF] + _DIGIT_TRIPLES[number >> 15 & 0x7FFF] + _DIGIT_TRIPLES[number & 0x7FFF]
    )


def partition_of(run_id: str) -> int:
    """The partition that a run lives in."""
    partition = _PARTITION_NUMBERS.get(run_id[_PARTITION_SLICE]) if len(run_id) == RUN_ID_LENGTH else None
    if partition is None:
        check_run_id(run_id)
        raise AssertionError("a valid id has a partition")
    return partition


def id_created_ms(run_id: str) -> int:
    """When the id was made, by the clock of the process that made it."""
    return _decode_digits(run_id[_TIME_SLICE])


def _decode_digits(digits: str) -> int:
    number = 0
    for digit in digits:
        number = number * 32 + _DIGITS.index(digit)
    return number


def is_run_id(text: str) -> bool:
    """Whether a text is a complete run id."""
    return _RUN_ID.fullmatch(text) is not None


def check_run_id(run_id: object) -> None:
    """Refuse a text that is not a run id."""
    if not (isinstance(run_id, str) and is_run_id(run_id)):
        raise Invalid(f"{quote_input(run_id)} is not the id of a run; one looks like {new_run_id()}.")


def new_nonce() -> str:
    """45 random bits: enough to distinguish all nonces that one server sees of one run or worker."""
    return _encode_digits(int.from_bytes(os.urandom(8)))


assert len(_DIGIT_TRIPLES) // 32 == PARTITIONS
