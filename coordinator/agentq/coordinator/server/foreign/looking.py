"""What the store knows of a foreign runner at one moment, read from the replies of one script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from agentq.coordinator.queue import Claim
from agentq.coordinator.server.foreign.dialects import Dialect
from agentq.coordinator.server.foreign.registration import Registration

HEAD = 6
"""Values of the script's reply before the fields."""
REMEMBERED = 5_000
GIVEN = "run:"
"""What the fields begin with that name the runs a runner was given and has not reported the end of."""


@dataclass(frozen=True, slots=True)
class Hold:
    """A run that a runner holds, as a worker does."""

    claim: Claim
    state: str
    stopping: bool
    claimed_at_ms: int
    session: str


@dataclass(frozen=True, slots=True)
class Given:
    """A run that a runner was given; its process may be there, whatever has become of the run."""

    run: str
    session: str
    told_at_ms: int
    """When the runner was last told to stop it; 0 if never."""
    times: int


@dataclass(frozen=True, slots=True)
class Look:
    """Everything that the store knows of a runner, at one moment."""

    runner: str
    now_ms: int
    registration: Registration
    fields: Mapping[str, str]
    epochs: tuple[str, ...]
    registered: bool
    """Whether it is a worker, in every partition, that nobody has declared lost."""
    draining: bool
    """Whether it is to take no more runs, and to leave when it has none."""
    lease_until_ms: int
    shelf: str
    """The revision of the shelf."""
    holds: tuple[Hold, ...] = ()
    given: tuple[Given, ...] = ()

    @property
    def dialect(self) -> Dialect:
        return self.registration.dialect

    @property
    def leaving(self) -> bool:
        """Whether somebody else has deregistered it, and it is to be told."""
        return "deregistered" in self.fields


def look_of(runner: str, replies: Sequence[Any], home: int) -> Look | None:
    """A runner as the partitions tell of it, of which one is its own; None if nobody knows it."""
    told = replies[home]
    fields = dict(_pairs(told[HEAD : HEAD + 2 * told[HEAD - 1]]))
    if "body" not in fields:
        return None
    holds = tuple(hold for reply in replies for hold in _holds(reply[HEAD + 2 * reply[HEAD - 1] :]))
    return Look(
        runner,
        int(told[0]),
        _registration(fields["body"]),
        fields,
        tuple(reply[2] for reply in replies),
        all(reply[1] in ("ready", "draining") for reply in replies),
        any(reply[1] == "draining" for reply in replies),
        min(int(float(reply[3])) for reply in replies),
        replies[0][4],
        holds,
        tuple(_given(fields)),
    )


@lru_cache(maxsize=REMEMBERED)
def _registration(body: str) -> Registration:
    """The same words come with each of a runner's polls."""
    return Registration.model_validate_json(body)


def _pairs(flat: list[str]) -> list[tuple[str, str]]:
    return list(zip(flat[::2], flat[1::2], strict=True))


def _holds(flat: list[str]) -> list[Hold]:
    rows = [flat[at : at + 6] for at in range(0, len(flat), 6)]
    return [
        Hold(Claim(run, fence, "", ""), state, bool(stop), int(claimed or 0), session)
        for run, fence, state, stop, claimed, session in rows
    ]


def _given(fields: Mapping[str, str]) -> list[Given]:
    found = []
    for name, value in fields.items():
        if name.startswith(GIVEN):
            session, told, times = value.split(" ")
            found.append(Given(name.removeprefix(GIVEN), session, int(told), int(times)))
    return found
