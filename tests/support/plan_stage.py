"""A plan, and a worker that does its tasks as the test says."""

from __future__ import annotations

from collections.abc import Sequence

from support.world import World

from agentq.coordinator.events.stream import Event
from agentq.coordinator.model.lifecycle import OutcomeClass, State
from agentq.coordinator.model.spec import Outcome, RunSpec
from agentq.coordinator.plans.verbs import OnFailedPolicy, Plans, TaskSubmission
from agentq.coordinator.runs.verbs import Claim
from agentq.coordinator.workers.lease import WorkerLease

WORK = RunSpec(kind="command", argv=["make"])


def task(name: str, *needs: str, spec: RunSpec = WORK) -> TaskSubmission:
    return TaskSubmission(name, spec, needs)


DIAMOND = [task("d", "b", "c"), task("b", "a"), task("c", "a"), task("a")]


class PlanStage:
    """A plan and a worker that does its tasks as the test says."""

    def __init__(
        self,
        world: World,
        tasks: Sequence[TaskSubmission] = DIAMOND,
        on_failed: OnFailedPolicy = "skip",
        budget_usd: float | None = None,
    ) -> None:
        self.world = world
        self.queue = world.queue
        self.plans = Plans(world.queue)
        said = {"on_failed": on_failed, "source": "the source", "budget_usd": budget_usd}
        self.plan = self.plans.create("shop", tasks, **said)  # type: ignore[arg-type]
        self.lease: WorkerLease = world.worker("w1")
        self.claims: dict[str, Claim] = {}

    def claim(self) -> list[str]:
        """Take all that can be taken; returns the tasks that are held now, by name."""
        names = {run: name for name, run in self.runs().items()}
        self.claims |= {names[claim.id]: claim for claim in self.lease.claim(1000)}
        return sorted(self.claims)

    def runs(self) -> dict[str, str]:
        return {record.id: record.run for record in self.plans.all_tasks(self.plan)}

    def finish(self, *names: str) -> None:
        for name in names:
            self.claim()
            assert self.queue.finish([(self.claims.pop(name), Outcome())]) == [None]

    def fail(self, name: str) -> None:
        self.claim()
        self.queue.fail(self.claims.pop(name), Outcome(class_=OutcomeClass.REJECTED, error="it went wrong"))

    def confirm(self) -> None:
        """Whatever is held is to stop, and does."""
        self.claim()
        for claim in self.claims.values():
            assert self.queue.fail(claim, Outcome(class_=OutcomeClass.CANCELLED)) is State.CANCELLED
        self.claims.clear()

    def states(self) -> dict[str, str]:
        return {record.id: record.state.value for record in self.plans.all_tasks(self.plan)}

    def words(self) -> list[Event]:
        """What was told of the plan's end."""
        return [event for event in self.world.events() if event.event == "plan_ended"]

    @property
    def state(self) -> str:
        return self.plans.get(self.plan).state
