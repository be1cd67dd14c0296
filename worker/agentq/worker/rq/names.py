"""What an RQ queue is called in agentq: `rq.` and its name, in which what agentq's names cannot hold is spelled `+XX`.

The way back is exact, so that two queues never share a lane. What is done for a queue besides its jobs (`closing`)
waits in a queue of its own, so that it is not counted among them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from agentq.coordinator.errors import Invalid
from agentq.coordinator.limits import NAME_LENGTH

PREFIX = "rq."
UPKEEP = "rq-upkeep."
_SPELLED = re.compile(r"[^A-Za-z0-9_.@-]")
_SPELLING = re.compile(r"((?:\+[0-9A-F]{2})+)")


def queue_name(rq_queue: str) -> str:
    """The agentq queue of an RQ queue."""
    spelled = _SPELLED.sub(lambda match: "".join(f"+{byte:02X}" for byte in match[0].encode()), rq_queue)
    if not rq_queue or len(UPKEEP + spelled) > NAME_LENGTH:
        raise Invalid(
            f"The RQ queue {rq_queue[:80]!r} cannot be adopted: as the queue {(PREFIX + spelled)[:80]!r} its name has "
            f"{len(spelled)} characters, and 1 to {NAME_LENGTH - len(UPKEEP)} are possible; rename it."
        )
    return PREFIX + spelled


def upkeep_name(rq_queue: str) -> str:
    """The agentq queue of what is done for an RQ queue besides its jobs."""
    return UPKEEP + queue_name(rq_queue).removeprefix(PREFIX)


def served(rq_queues: Iterable[str]) -> tuple[str, ...]:
    """The queues that who adopts these serves."""
    names = list(rq_queues)
    return (*map(queue_name, names), *map(upkeep_name, names))


def rq_queue_name(queue: str) -> str:
    """The RQ queue that an agentq queue stands for."""
    if not is_of_rq(queue):
        raise Invalid(f"The queue {queue!r} is not one of RQ; those begin with {PREFIX!r}.")
    return _SPELLING.sub(lambda match: bytes.fromhex(match[0].replace("+", "")).decode(), queue.removeprefix(PREFIX))


def is_of_rq(queue: str) -> bool:
    """Whether an agentq queue stands for one of RQ."""
    return queue.startswith(PREFIX)


def is_for_rq(queue: str) -> bool:
    """Whether an agentq queue stands for one of RQ, or has what is done for one."""
    return queue.startswith((PREFIX, UPKEEP))


def names_in(texts: Iterable[str]) -> tuple[str, ...]:
    """The queues that somebody lists, with commas or one by one; each once, the first first."""
    names = [name.strip() for text in texts for name in text.split(",")]
    if not all(names):
        raise Invalid("An RQ queue has a name; write several as in --rq high,default.")
    spaced = next((name for name in names if len(name.split()) > 1), None)
    if spaced is not None:
        raise Invalid(
            f"{spaced!r} would be one queue; write several with commas, as in --rq {','.join(spaced.split())}."
        )
    return tuple(dict.fromkeys(names))
