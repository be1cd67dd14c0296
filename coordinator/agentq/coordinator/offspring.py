"""The children of a run as one of its attempts looks after them: it has to hold the run, which the scripts see to."""

from __future__ import annotations

from contextlib import suppress

from pydantic_core import to_json

from agentq.coordinator import limits
from agentq.coordinator.errors import Invalid, NotAllowed, NotFound, refusal
from agentq.coordinator.identity import partition_of
from agentq.coordinator.life import Run
from agentq.coordinator.lifecycle import State
from agentq.coordinator.logs import LogEntry, Logs
from agentq.coordinator.outcomes import Bell, Outcomes
from agentq.coordinator.queue import Claim, Queue, receipt_of
from agentq.coordinator.records import Records
from agentq.coordinator.run import RunSpec

OF_OTHERS = {"plan", "session", "dedupe_key"}
"""What decides in which partition a run lives; a child lives in that of its parent."""


class Offspring:
    """Those of one attempt's run."""

    def __init__(self, queue: Queue, claim: Claim) -> None:
        self._queue = queue
        self._records = Records(queue.store)
        self._claim = claim

    def submit(self, spec: RunSpec, *, most: int, run_id: str | None = None) -> str:
        """Put a child into the world, if there are fewer than so many that have not been heard of; its id."""
        if len(spec.after) > limits.DEPENDENCIES_A_CALL:
            raise Invalid(f"A child can wait for {limits.DEPENDENCIES_A_CALL} others at the most.")
        if spec.parent not in (None, self._claim.id):
            raise NotAllowed(f"A run has children of its own only, not of {spec.parent}.")
        if strange := sorted(spec.model_fields_set & OF_OTHERS):
            raise NotAllowed(f"A child has no {strange[0]}: that would concern runs of others.")
        spec = spec.model_copy(update={"parent": self._claim.id})
        run_id, partition = self._queue.address(spec, run_id)
        door = spec.to_door() | {"parent": self._claim.id, "fence": self._claim.fence, "most": most}
        (word,) = self._queue.store.call("run/submit", partition, run_id, spec.lane, spec.to_wire(), to_json(door))
        receipt = receipt_of(run_id, word)
        if receipt.refused is not None:
            raise receipt.refused
        return receipt.id

    def cancel(self, child: str, reason: str) -> State:
        """End one of them."""
        words = (child, reason[: limits.ERROR_CHARACTERS], limits.STOP_MS, self._claim.id, self._claim.fence)
        reply = str(self._queue.store.call("run/cancel", partition_of(child), *words))
        refused = refusal(reply, f"run {child}")
        if refused is not None:
            raise refused
        return State(reply.removeprefix("ok "))

    def get(self, run_id: str) -> Run:
        """One of them, or the run itself; what is not theirs cannot be told from what is not there."""
        with suppress(NotFound):
            run = self._records.get(run_id)
            if run.id == self._claim.id or run.spec.parent == self._claim.id:
                return run
        raise NotAllowed(f"The run {run_id} is neither {self._claim.id} nor a child of it.")

    def written(self, child: str, after: str, characters: int) -> tuple[list[LogEntry], bool]:
        """What one of them wrote after a point, about so much at a time, and whether there is more."""
        log, entries, size = Logs(self._queue.store), list[LogEntry](), 0
        for entry in log.read(self.get(child).id, after):
            size += len(entry.text)
            entries.append(entry)
            if size >= characters:
                return entries, True
        return entries, False


class Kin:
    """Those of all runs that one worker holds, and whoever is to be told when one of them has ended."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._outcomes = Outcomes(queue.store)

    def of(self, claim: Claim) -> Offspring:
        """Those of one attempt's run."""
        return Offspring(self._queue, claim)

    def enter(self, claim: Claim, run_id: str, bell: Bell) -> None:  # noqa: ARG002 - the server itself does not ask whose
        """Have a bell rung from now on whenever it is time to look at a run."""
        self._outcomes.enter(run_id, bell)

    def leave(self, run_id: str, bell: Bell) -> None:
        """Do not ring it any more."""
        self._outcomes.leave(run_id, bell)

    def close(self) -> None:
        """Nobody may wait any more."""
        self._outcomes.close()
