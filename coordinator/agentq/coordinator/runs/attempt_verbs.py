"""The verbs of the worker that holds a run: each presents the fence of the attempt.

How a worker comes to hold any is in lease.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from pydantic_core import to_json

from agentq.coordinator import bounds
from agentq.coordinator.errors import AgentqError, Invalid, refusal_error
from agentq.coordinator.model.ids import partition_of
from agentq.coordinator.model.lifecycle import COMPLETING_CLASSES, State
from agentq.coordinator.model.spec import Outcome
from agentq.coordinator.storage.connection import CommandArgument
from agentq.coordinator.storage.store import NamespaceStore

if TYPE_CHECKING:
    # Imported on use: a submit needs none of these models.
    from agentq.coordinator.runs.logs import LogChunk
    from agentq.coordinator.runs.merge_progress import MergeProgress
    from agentq.coordinator.runs.merge_queue import MergeQueuePosition
    from agentq.coordinator.runs.run_record import RunRecord
    from agentq.coordinator.runs.wait import Resumption, RunWait, SignalMessage


class Claim(NamedTuple):
    """A claimed run: its spec, and the fence that every report must present."""

    id: str
    fence: str
    lane: str
    spec: str


class AttemptVerbs:
    """The verbs of the attempt that holds a run."""

    def __init__(self, store: NamespaceStore) -> None:
        self.store = store

    def start(self, claims: Sequence[Claim]) -> list[AgentqError | None]:
        """Report that these attempts have started; returns the refusal of each, or None."""
        rows = [(claim.id, claim.fence) for claim in claims]
        return self._say_many("attempt/start", [claim.id for claim in claims], rows)

    def report(self, claim: Claim, number: int, progress: Mapping[str, object]) -> None:
        """Report the progress of an attempt. The worker numbers its reports; an old number changes nothing."""
        body = to_json(progress)
        if len(body) > bounds.PROGRESS_BYTES:
            raise Invalid(f"Progress has {len(body)} bytes; {bounds.PROGRESS_BYTES} is the most.")
        self._call("attempt/report_progress", claim.id, claim.fence, number, body)

    def log(self, claim: Claim, number: int, chunks: Sequence[LogChunk]) -> None:
        """Append new output of an attempt to its run's log.

        The worker numbers its calls from 1, each with another number, and keeps the chunks of a call until it was
        answered: one that is sent again with the same number and the same chunks is not doubled.
        """
        if len(chunks) > bounds.LOG_CHUNKS_PER_CALL:
            raise Invalid(f"A call takes {bounds.LOG_CHUNKS_PER_CALL} chunks at the most, not {len(chunks)}.")
        longest = max((len(chunk.text) for chunk in chunks), default=0)
        if longest > bounds.LOG_CHUNK_CHARACTERS:
            raise Invalid(f"A chunk has {bounds.LOG_CHUNK_CHARACTERS} characters at the most, not {longest}.")
        self._call("attempt/append_log", claim.id, claim.fence, number, *chain.from_iterable(chunks))

    def finish(self, finished: Sequence[tuple[Claim, Outcome]]) -> list[AgentqError | None]:
        """Report that these attempts completed; returns the refusal of each, or None."""
        rows = [(claim.id, claim.fence, outcome.to_wire()) for claim, outcome in finished]
        return self._say_many("attempt/finish", [claim.id for claim, _ in finished], rows)

    def fail(self, claim: Claim, outcome: Outcome, *, delay_ms: int | None = None) -> State:
        """Report that an attempt failed. Its class and the run's policy decide what happens next."""
        if outcome.class_ in COMPLETING_CLASSES:
            raise Invalid(f"An attempt that failed has another class than '{outcome.class_}'.")
        delay = "" if delay_ms is None else min(max(0, delay_ms), bounds.DELAY_MS_MAX)
        dice = self.store.dice()
        return self._move("attempt/fail", claim.id, claim.fence, outcome.class_.value, outcome.to_wire(), dice, delay)

    def defer(
        self, claim: Claim, due_at_ms: int | None, outcome: Outcome, *, delay_ms: int | None = None, gate: str = ""
    ) -> State:
        """Defer a run until a usage limit has passed; it spends no attempt.

        Without a time it goes on after `delay_ms`, and without that as its policy backs off. With a gate, the key that
        the limit is of, nobody else is let in under it before that time either.
        """
        if due_at_ms is not None and delay_ms is not None:
            raise Invalid("An attempt is put off until a time or for a while, not both.")
        due = "" if due_at_ms is None else _clamp_time(due_at_ms)
        delay = "" if delay_ms is None else min(max(0, delay_ms), bounds.DELAY_MS_MAX)
        return self._move(
            "attempt/defer", claim.id, claim.fence, due, delay, outcome.to_wire(), gate, self.store.dice()
        )

    def release(self, claim: Claim, reason: str = "released") -> State:
        """Hand a run back after its processes have ended; it spends no attempt."""
        return self._move("attempt/release", claim.id, claim.fence, reason)

    def park(
        self,
        claim: Claim,
        reason: str = "",
        wait: RunWait | None = None,
        *,
        alarm_at_ms: int | None = None,
    ) -> State:
        """Park a run: it gives its slot back until its wait is over. What this attempt received is deleted."""
        from agentq.coordinator.runs.wait import RunWait

        wait = wait or RunWait()
        if alarm_at_ms is not None:
            wait = wait.model_copy(update={"until_ms": _clamp_time(alarm_at_ms)})
        return self._move("attempt/park", claim.id, claim.fence, *wait.script_arguments(reason))

    def receive(self, claim: Claim) -> Resumption | None:
        """The result of the run's wait; None if it has never parked. It is kept until the attempt parks again."""
        from agentq.coordinator.runs.wait import receive_resumption

        return receive_resumption(self.store, claim.id, claim.fence)

    # ---- reading other runs

    def mail(self, claim: Claim) -> list[SignalMessage]:
        """The signals that its run has received and not taken."""
        from agentq.coordinator.runs.wait import list_signals

        return list_signals(self.store, claim.id)

    def given(self, claim: Claim, runs: Sequence[str]) -> list[RunRecord]:
        """The records of the runs whose results its run is given, or that it comes after, as far as they exist."""
        from agentq.coordinator.runs.queries import RunQueries

        return RunQueries(self.store).given(claim.id, runs)

    def finished(self, claim: Claim, plan: str, most: int) -> list[RunRecord]:
        """The newest completed runs of its plan."""
        from agentq.coordinator.runs.queries import RunFilter, RunQueries

        page = RunQueries(self.store).page(RunFilter(states=(State.COMPLETED,), plan=plan), limit=most)
        return self.given(claim, [run.id for run in page.runs])

    # ---- its workspace

    def intend(self, claim: Claim, intent: MergeProgress) -> None:
        """Record the progress of an attempt in its workspace, before each irreversible step."""
        self._call("merge/record_step", claim.id, claim.fence, intent.to_wire())

    def intent(self, claim: Claim) -> MergeProgress | None:
        """The last progress recorded by this attempt or an earlier one."""
        from agentq.coordinator.runs.merge_progress import read_merge_progress

        return read_merge_progress(self.store, claim.id, claim.fence)

    def pin(self, claim: Claim, place: str, commit: str = "") -> str | None:
        """The commit that a base of its plan stands for. The first `commit` passed is kept; None until then."""
        from agentq.coordinator.runs.merge_progress import pin_base

        return pin_base(self.store, claim.id, claim.fence, place, commit)

    def line_up(self, claim: Claim, line: str, commit: str, ref: str = "") -> MergeQueuePosition:
        """Enter the merge queue of a branch with a commit to merge; call again for the current position."""
        from agentq.coordinator.runs.merge_queue import enter_merge_queue

        return enter_merge_queue(self.store, claim.id, claim.fence, line, commit, ref)

    def step_aside(self, claim: Claim, line: str) -> None:
        """Leave that line, before the attempt ends."""
        self._call("merge/leave_queue", claim.id, claim.fence, line)

    # ---- how they are said

    def _call(self, verb: str, run_id: str, *words: CommandArgument) -> str:
        reply = str(self.store.call(verb, partition_of(run_id), run_id, *words))
        refused = refusal_error(reply, f"run {run_id}")
        if refused is not None:
            raise refused
        return reply

    def _move(self, verb: str, run_id: str, *words: CommandArgument) -> State:
        """Say a verb, and learn the state that the run is in now."""
        return State(self._call(verb, run_id, *words).removeprefix("ok "))

    def _say_many(
        self, verb: str, ids: Sequence[str], rows: Sequence[tuple[CommandArgument, ...]]
    ) -> list[AgentqError | None]:
        by_partition: dict[int, list[int]] = {}
        for place, run_id in enumerate(ids):
            by_partition.setdefault(partition_of(run_id), []).append(place)
        results: list[AgentqError | None] = [None] * len(ids)
        for partition, places in by_partition.items():
            words = self.store.call(verb, partition, *chain.from_iterable(map(rows.__getitem__, places)))
            for place, word in zip(places, words, strict=True):
                if word != "ok":
                    results[place] = refusal_error(word, f"run {ids[place]}")
        return results


def _clamp_time(at_ms: int) -> int:
    return min(max(0, at_ms), bounds.DUE_AT_MS_MAX)
