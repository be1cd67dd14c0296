"""The agentq name of an RQ queue: `rq.` and its name, with characters that agentq does not allow spelled `+XX`.

The mapping is reversible, so that two queues never share a lane. Upkeep of a queue besides its jobs (`job_outcomes`)
waits in a queue of its own, so that it is not counted among them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from agentq.coordinator.bounds import NAME_LENGTH
from agentq.coordinator.errors import Invalid

QUEUE_PREFIX = "rq."
UPKEEP_PREFIX = "rq-upkeep."
_ESCAPED_CHARACTER = re.compile(r"[^A-Za-z0-9_.@-]")
_ESCAPE_SEQUENCE = re.compile(r"((?:\+[0-9A-F]{2})+)")


def to_queue_name(rq_queue: str) -> str:
    """The agentq queue of an RQ queue."""
    spelled = _ESCAPED_CHARACTER.sub(lambda match: "".join(f"+{byte:02X}" for byte in match[0].encode()), rq_queue)
    if not rq_queue or len(UPKEEP_PREFIX + spelled) > NAME_LENGTH:
        raise Invalid(
            f"The RQ queue {rq_queue[:80]!r} cannot be adopted: as the queue {(QUEUE_PREFIX + spelled)[:80]!r} its "
            f"name has "
            f"{len(spelled)} characters, and 1 to {NAME_LENGTH - len(UPKEEP_PREFIX)} are possible; rename it."
        )
    return QUEUE_PREFIX + spelled


def to_upkeep_name(rq_queue: str) -> str:
    """The agentq queue for the upkeep of an RQ queue."""
    return UPKEEP_PREFIX + to_queue_name(rq_queue).removeprefix(QUEUE_PREFIX)


def list_served_queues(rq_queues: Iterable[str]) -> tuple[str, ...]:
    """The agentq queues that a worker adopting these RQ queues serves."""
    names = list(rq_queues)
    return (*map(to_queue_name, names), *map(to_upkeep_name, names))


def to_rq_name(queue: str) -> str:
    """The RQ queue of an agentq queue."""
    if not is_rq_queue(queue):
        raise Invalid(f"The queue {queue!r} is not one of RQ; those begin with {QUEUE_PREFIX!r}.")
    return _ESCAPE_SEQUENCE.sub(
        lambda match: bytes.fromhex(match[0].replace("+", "")).decode(), queue.removeprefix(QUEUE_PREFIX)
    )


def is_rq_queue(queue: str) -> bool:
    """Whether an agentq queue is for jobs of an RQ queue."""
    return queue.startswith(QUEUE_PREFIX)


def is_rq_related(queue: str) -> bool:
    """Whether an agentq queue is for jobs or upkeep of an RQ queue."""
    return queue.startswith((QUEUE_PREFIX, UPKEEP_PREFIX))


def split_names(texts: Iterable[str]) -> tuple[str, ...]:
    """Split queue names given with commas or one by one; each once, in order."""
    names = [name.strip() for text in texts for name in text.split(",")]
    if not all(names):
        raise Invalid("An RQ queue has a name; write several as in --rq high,default.")
    spaced = next((name for name in names if len(name.split()) > 1), None)
    if spaced is not None:
        raise Invalid(
            f"{spaced!r} would be one queue; write several with commas, as in --rq {','.join(spaced.split())}."
        )
    return tuple(dict.fromkeys(names))
