"""What plans cost, for `agentq bench`: a task of a large one, and the release of very many dependents at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from statistics import median, quantiles

from agentq.bench.throughput import (
    BATCH_SIZE,
    COMMAND_SPEC,
    BenchFigure,
    BenchNamespace,
    CoreBench,
    CoreScale,
    time_call,
)
from agentq.coordinator.duties.promoter import Promoter
from agentq.coordinator.model.lifecycle import State
from agentq.coordinator.model.spec import Outcome
from agentq.coordinator.plans.verbs import Plans, TaskSubmission


@dataclass(frozen=True, slots=True)
class PlanScale:
    """How much of everything."""

    rounds: int = 3
    tasks: tuple[int, int] = (1_000, 10_000)
    needs: int = 3
    dependents: int = 100_000


PLANS_QUICK = PlanScale(rounds=1, tasks=(100, 500), dependents=2_000)


def make_plan(tasks: int, needs: int) -> list[TaskSubmission]:
    """No-op tasks of which each needs some of those before it, the same each time."""
    chance = Random(tasks)
    names = [f"task-{number}" for number in range(tasks)]
    return [
        TaskSubmission(name, COMMAND_SPEC, tuple(chance.sample(names[max(0, at - 1000) : at], min(needs, at))))
        for at, name in enumerate(names)
    ]


class PlanBench(CoreBench):
    """The same server and namespace as the core's bench."""

    def __init__(self, place: BenchNamespace, scale: PlanScale) -> None:
        super().__init__(place, CoreScale())
        self.much = scale

    def figures(self) -> Iterator[BenchFigure]:
        """Every figure, one after the other."""
        yield from self.tasks()
        yield from self.release()
        self.connection.close()

    def tasks(self) -> Iterator[BenchFigure]:
        """A whole plan, from its submit to its end, by its size."""
        costs: dict[int, list[float]] = {size: [] for size in self.much.tasks}
        bytes_each: dict[int, float] = {}
        submitted = list[float]()
        for _ in range(self.much.rounds):
            for size, found in costs.items():
                with self.fresh():
                    plans, tasks = Plans(self.queue), make_plan(size, self.much.needs)
                    self._submit(1)
                    before = self.raw.info("memory")["used_memory"]
                    ids = list[str]()
                    submit = time_call(lambda: ids.append(plans.create("bench", tasks)))  # noqa: B023 - run at once
                    found.append((submit + time_call(lambda: self._complete(plans, ids[0]))) / size)  # noqa: B023
                    bytes_each[size] = (self.raw.info("memory")["used_memory"] - before) / size
                    submitted.append(submit / size)
        few, many = self.much.tasks
        edges = sum(len(task.needs) for task in make_plan(many, self.much.needs))
        found_ms = f"{many:,} tasks, {edges:,} edges; {median(submitted) * 1e3:.2f} ms of it to submit"
        yield BenchFigure("a no-op task of a plan, all in all", found_ms, median(costs[many]) * 1e3, "ms", most=1)
        each = f"{median(costs[few]) * 1e6:.0f} µs of {few:,}, {median(costs[many]) * 1e6:.0f} µs of {many:,}"
        yield BenchFigure("the same, by the size of the plan", each, median(costs[many]) / median(costs[few]), most=1.3)
        each = f"{bytes_each[few]:,.0f} bytes of {few:,}, {bytes_each[many]:,.0f} of {many:,}"
        yield BenchFigure("server memory per task, by its size", each, bytes_each[many] / bytes_each[few], most=1.1)

    def release(self) -> Iterator[BenchFigure]:
        """One task that very many wait for ends: how long a call keeps the server, and how many are let go in a second.

        By the server's own processor time, which its neighbours disturb least.
        """
        with self.fresh():
            plans, store = Plans(self.queue), self.queue.store
            after = (
                TaskSubmission(f"t{number}", COMMAND_SPEC, ("first",)) for number in range(self.much.dependents - 1)
            )
            plan = plans.create("bench", [TaskSubmission("first", COMMAND_SPEC), *after])
            held = self._lease().claim(1)
            busy, passed = list[float](), list[float]()

            def measured(act: Callable[[], object]) -> None:
                before = self._busy()
                passed.append(time_call(act))
                busy.append(self._busy() - before)

            measured(lambda: self.queue.finish([(held[0], Outcome(exit_code=0))]))
            left = list[int]([1])
            while left[-1]:
                measured(lambda: left.append(store.call("duty/notify_dependents", 0)))
            let_go = plans.counts(plan)[State.PENDING]
        clock = f"{median(passed) * 1e3:.1f} ms by the clock, the longest {max(passed) * 1e3:.1f} ms"
        found = f"{let_go:,} dependents, {len(busy):,} calls, the longest {max(busy) * 1e3:.1f} ms; {clock}"
        # A call during a rewrite of the append-only file pays for the fork.
        yield BenchFigure("release of dependents, a call, p99", found, quantiles(busy, n=100)[98] * 1e3, "ms", most=10)
        yield BenchFigure("release of dependents", found, let_go / sum(busy), "/s", least=20_000)

    def _busy(self) -> float:
        """Seconds that the server has been at work."""
        told = self.raw.info("cpu")
        return float(told["used_cpu_user_main_thread"]) + float(told["used_cpu_sys_main_thread"])

    def _complete(self, plans: Plans, plan: str) -> None:
        """A worker does all of it, as fast as it can be told."""
        lease, promoter, done = self._lease(), Promoter(self.queue.store, 1_000), Outcome(exit_code=0)
        while True:
            claims = lease.claim(BATCH_SIZE)
            if claims:
                assert not any(self.queue.finish([(claim, done) for claim in claims]))
            elif plans.get(plan).ended:
                return
            else:
                promoter.run_once(0)
