"""The children of a run, managed by an attempt that holds it; scripts check that it does."""

from __future__ import annotations

from contextlib import suppress

from pydantic_core import to_json

from agentq.coordinator import bounds
from agentq.coordinator.errors import Invalid, NotAllowed, NotFound, refusal_error
from agentq.coordinator.model.ids import partition_of
from agentq.coordinator.model.lifecycle import State
from agentq.coordinator.model.spec import RunSpec
from agentq.coordinator.runs.end_waiter import RunEndWaiter, WakeFlag
from agentq.coordinator.runs.logs import Logs, RunLogEntry
from agentq.coordinator.runs.queries import RunQueries
from agentq.coordinator.runs.run_record import RunRecord
from agentq.coordinator.runs.verbs import Claim, RunVerbs, parse_receipt

FORBIDDEN_CHILD_FIELDS = {"plan", "session", "dedupe_key"}
"""Fields that decide the partition of a run; a child lives in the partition of its parent."""


class AttemptChildren:
    """The children of one attempt's run."""

    def __init__(self, queue: RunVerbs, claim: Claim) -> None:
        self._queue = queue
        self._records = RunQueries(queue.store)
        self._claim = claim

    def submit(self, spec: RunSpec, *, most: int, run_id: str | None = None) -> str:
        """Submit a child, if fewer than the maximum are live or unreported; returns its id."""
        if len(spec.after) > bounds.DEPENDENCIES_PER_CALL:
            raise Invalid(f"A child can wait for {bounds.DEPENDENCIES_PER_CALL} others at the most.")
        if spec.parent not in (None, self._claim.id):
            raise NotAllowed(f"A run has children of its own only, not of {spec.parent}.")
        if strange := sorted(spec.model_fields_set & FORBIDDEN_CHILD_FIELDS):
            raise NotAllowed(f"A child has no {strange[0]}: that would concern runs of others.")
        spec = spec.model_copy(update={"parent": self._claim.id})
        run_id, partition = self._queue.address(spec, run_id)
        parent = {"parent": self._claim.id, "fence": self._claim.fence, "max_children": most}
        options = spec.to_submit_options() | parent
        (word,) = self._queue.store.call("run/submit", partition, run_id, spec.lane, spec.to_wire(), to_json(options))
        receipt = parse_receipt(run_id, word)
        if receipt.refused is not None:
            raise receipt.refused
        return receipt.id

    def cancel(self, child: str, reason: str) -> State:
        """Cancel a child."""
        words = (child, reason[: bounds.ERROR_CHARACTERS], bounds.STOP_DEADLINE_MS, self._claim.id, self._claim.fence)
        reply = str(self._queue.store.call("run/cancel", partition_of(child), *words))
        refused = refusal_error(reply, f"run {child}")
        if refused is not None:
            raise refused
        return State(reply.removeprefix("ok "))

    def get(self, run_id: str) -> RunRecord:
        """The record of a child or of the run itself; any other run is reported as not found."""
        with suppress(NotFound):
            run = self._records.get(run_id)
            if run.id == self._claim.id or run.spec.parent == self._claim.id:
                return run
        raise NotAllowed(f"The run {run_id} is neither {self._claim.id} nor a child of it.")

    def written(self, child: str, after: str, characters: int) -> tuple[list[RunLogEntry], bool]:
        """A piece of a child's log after a point, of about so many bytes, and whether there is more."""
        log, entries, size = Logs(self._queue.store), list[RunLogEntry](), 0
        for entry in log.read(self.get(child).id, after):
            size += len(entry.text)
            entries.append(entry)
            if size >= characters:
                return entries, True
        return entries, False


class WorkerChildren:
    """The children of all runs that one worker holds, and the waits for their ends."""

    def __init__(self, queue: RunVerbs) -> None:
        self._queue = queue
        self._outcomes = RunEndWaiter(queue.store)

    def of(self, claim: Claim) -> AttemptChildren:
        """The children of one attempt's run."""
        return AttemptChildren(self._queue, claim)

    def enter(self, claim: Claim, run_id: str, bell: WakeFlag) -> None:  # noqa: ARG002 - the server does not ask
        """Set `bell` from now on whenever a run should be read again."""
        self._outcomes.enter(run_id, bell)

    def leave(self, run_id: str, bell: WakeFlag) -> None:
        """Stop setting it."""
        self._outcomes.leave(run_id, bell)

    def close(self) -> None:
        """Close; no waits may follow."""
        self._outcomes.close()
