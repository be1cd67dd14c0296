"""The state of a runner at one moment, parsed from the replies of one script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from agentq.coordinator.model.ids import id_created_ms
from agentq.coordinator.model.lifecycle import State
from agentq.coordinator.model.spec import parse_spec
from agentq.coordinator.runs.run_record import RunRecord
from agentq.coordinator.runs.verbs import Claim
from agentq.dialects.agent_orchestrator.dialect_table import Dialect
from agentq.dialects.agent_orchestrator.runners.registration import RunnerRegistration

HEAD_LENGTH = 6
"""Values in the script's reply before the fields."""
CACHED_REGISTRATIONS = 5_000
GIVEN_PREFIX = "run:"
"""Prefix of the fields that name the runs which a runner was given and has not reported as ended."""


@dataclass(frozen=True, slots=True)
class HeldRun:
    """A run that a runner holds, as a worker does."""

    claim: Claim
    state: str
    stopping: bool
    claimed_at_ms: int
    session: str


@dataclass(frozen=True, slots=True)
class GivenRun:
    """A run that a runner was given; its process may still exist, whatever the state of the run."""

    run: str
    session: str
    stop_ordered_at_ms: int
    """When the runner was last ordered to stop it; 0 if never."""
    stops_ordered: int


@dataclass(frozen=True, slots=True)
class RunnerSnapshot:
    """The state of a runner in the store, at one moment."""

    runner: str
    now_ms: int
    registration: RunnerRegistration
    fields: Mapping[str, str]
    epochs: tuple[str, ...]
    is_registered: bool
    """Whether it is a worker in every partition, and not declared lost."""
    is_draining: bool
    """Whether it gets no more runs, and leaves when it has none."""
    lease_until_ms: int
    blueprints_revision: str
    """The revision of the blueprints."""
    held_runs: tuple[HeldRun, ...] = ()
    given_runs: tuple[GivenRun, ...] = ()

    @property
    def dialect(self) -> Dialect:
        return self.registration.dialect

    @property
    def is_deregistered(self) -> bool:
        """Whether another client has deregistered it, and it is to be told."""
        return "deregistered" in self.fields


def parse_snapshot(runner: str, replies: Sequence[Any], home: int) -> RunnerSnapshot | None:
    """The snapshot of a runner from the replies of all partitions, of which `home` has its fields; None if it is
    unknown."""
    home_reply = replies[home]
    fields = dict(_pair_fields(home_reply[HEAD_LENGTH : HEAD_LENGTH + 2 * home_reply[HEAD_LENGTH - 1]]))
    if "body" not in fields:
        return None
    holds = tuple(
        hold for reply in replies for hold in _parse_held_runs(reply[HEAD_LENGTH + 2 * reply[HEAD_LENGTH - 1] :])
    )
    return RunnerSnapshot(
        runner,
        int(home_reply[0]),
        _parse_registration(fields["body"]),
        fields,
        tuple(reply[2] for reply in replies),
        all(reply[1] in ("ready", "draining") for reply in replies),
        any(reply[1] == "draining" for reply in replies),
        min(int(float(reply[3])) for reply in replies),
        replies[0][4],
        holds,
        tuple(_parse_given_runs(fields)),
    )


@lru_cache(maxsize=CACHED_REGISTRATIONS)
def _parse_registration(body: str) -> RunnerRegistration:
    """Cached, since each poll of a runner reads the same text."""
    return RunnerRegistration.model_validate_json(body)


def _pair_fields(flat: list[str]) -> list[tuple[str, str]]:
    return list(zip(flat[::2], flat[1::2], strict=True))


def _parse_held_runs(flat: list[str]) -> list[HeldRun]:
    rows = [flat[at : at + 6] for at in range(0, len(flat), 6)]
    return [
        HeldRun(Claim(run, fence, "", ""), state, bool(stop), int(claimed or 0), session)
        for run, fence, state, stop, claimed, session in rows
    ]


def _parse_given_runs(fields: Mapping[str, str]) -> list[GivenRun]:
    found = []
    for name, value in fields.items():
        if name.startswith(GIVEN_PREFIX):
            session, ordered_at_ms, times = value.split(" ")
            found.append(GivenRun(name.removeprefix(GIVEN_PREFIX), session, int(ordered_at_ms), int(times)))
    return found


def build_claimed_run(claim: Claim, snapshot: RunnerSnapshot) -> RunRecord:
    """The record of a run that was claimed now, with the fields that a runner needs."""
    return RunRecord.model_construct(
        id=claim.id,
        spec=parse_spec(claim.spec, claim.lane),
        state=State.CLAIMED,
        worker=snapshot.runner,
        fence=claim.fence,
        submitted_at_ms=id_created_ms(claim.id),
        claimed_at_ms=snapshot.now_ms,
        started_at_ms=None,
        finished_at_ms=None,
        stop_at_ms=None,
        outcome=None,
        attempts=[],
    )
