"""Those who submit: they send again what was not answered, much later at times, and cancel, wake and requeue."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from agentq.coordinator.errors import AgentqError, Unreachable
from agentq.coordinator.model.lifecycle import State
from agentq.coordinator.model.spec import RunSpec

if TYPE_CHECKING:
    from simulation.simulator import Simulator

LIMITS = ("a", "a", "b", "queue:default", "queue:slow", "global")
QUEUES = ("default", "default", "slow")
PLANS_MOST = 3
SESSIONS = ("s1", "s1", "s1", "s2", "s3")
LIVE_MOST = 12
KNOWN_MOST = 30
OPENED: tuple[dict[str, Any], ...] = (
    {"kind": "command", "argv": ("true",)},
    {"kind": "agent", "agent": "claude", "prompt": "x", "session": "s1"},
    {"kind": "command", "argv": ("false",), "dedupe_key": "a", "if_live": "follow"},
)
FIELDS: tuple[tuple[float, str, Callable[[Simulator], Any]], ...] = (
    (0.2, "delay_ms", lambda sim: sim.chance.choice((0, 50, 3_000, 20_000))),
    (0.1, "expires_ms", lambda sim: sim.chance.choice((0, 500, 5_000, 40_000))),
    (0.3, "dedupe_key", lambda sim: sim.chance.choice(("a", "b"))),
    (0.5, "if_live", lambda sim: sim.chance.choice(("return", "reject", "replace", "follow", "follow", "debounce"))),
    (0.3, "on_failed", lambda sim: sim.chance.choice(("skip", "run", "fail"))),
    (0.4, "priority", lambda sim: sim.chance.choice((0, 9))),
    (0.1, "demands", lambda _: {"gpu": "1"}),
    (0.1, "plan", lambda _: "plan"),
    (0.1, "session", lambda _: "session"),
    (0.8, "retry", lambda sim: retry(sim)),
    (0.3, "limits", lambda sim: dict.fromkeys(sim.chance.choice((("a",), ("b",), ("a", "b"))), 1)),
    (0.2, "fair_key", lambda sim: sim.chance.choice(("x", "y", "z"))),
)


def retry(sim: Simulator) -> dict[str, Any]:
    """A policy; few are generous."""
    chance = sim.chance
    policy: dict[str, Any] = {"failures": chance.choice((0, 1, 1, 2)), "delay_ms": chance.choice((0, 0, 2_000))}
    policy |= {"crashes": chance.choice((0, 1, 3)), "deferrals": chance.choice((0, 1, 5)), "delay_ms_max": 10_000}
    if chance.random() < 0.2:
        policy["final"] = (chance.choice(("exit", "lost", "timeout", "limit")),)
    elif chance.random() < 0.3:
        own = chance.choice(({"retries": 1, "delay_ms": 700}, {"delays_ms": (5, 900)}, {"retries": 0}))
        policy["classes"] = {chance.choice(("exit", "lost", "timeout", "limit")): own}
    if chance.random() < 0.2:
        policy |= chance.choice(({"factor": 1}, {"jitter": False}, {"delays_ms": (0, 300)}, {"only": ("exit", "oom")}))
    if chance.random() < 0.1:
        policy["max_elapsed_ms"] = chance.choice((0, 2_000, 20_000))
    if "only" in policy and set(policy["only"]) & set(policy.get("final", ())):
        del policy["final"]
    return policy


class Clients:
    """All clients together; nothing tells one from another."""

    def __init__(self, sim: Simulator) -> None:
        self.sim = sim
        self.unanswered: list[Callable[[], object]] = []
        self.unsealed: list[tuple[str, list[str]]] = []
        self.undecided = random.Random(f"{sim.seed} open").random() < 0.3
        """Whether submits in several calls are of turns and followers too, and name whoever is there by then."""

    def say(self, what: Callable[[], object]) -> None:
        """Say something; what was not answered is said again some time, or never."""
        try:
            what()
        except Unreachable:
            if self.sim.chance.random() < 0.8:
                self.unanswered.append(what)
        except AgentqError:
            pass

    def again(self) -> None:
        """Say something again that was not answered."""
        if self.unanswered:
            self.say(self.unanswered.pop(self.sim.chance.randrange(len(self.unanswered))))

    def submit(self) -> None:
        chance, queue = self.sim.chance, self.sim.queue
        if self.is_crowded:
            return
        if chance.random() < 0.15:
            specs, ids = [self._spec(), self._spec()], [self.sim.run_id(), self.sim.run_id()]
            self.say(lambda: list(queue.submit_many(specs, run_ids=ids)))
            return
        spec, run = self._spec(), self.sim.run_id()
        self.say(lambda: queue.submit(spec, run_id=run))

    def open(self) -> None:
        """A submit in several calls, of which only the first is made now."""
        if self.is_crowded:
            return
        parents = self._some_runs(3)
        run, fields = self.sim.run_id(), {"keep_ms": 60_000, "on_failed": self.sim.chance.choice(("skip", "run"))}
        what = self.sim.chance.choice(OPENED) if self.undecided else OPENED[0]
        spec = RunSpec(**what | fields)
        options = json.dumps(spec.to_submit_options() | {"open": True})
        self.unsealed.append((run, parents))
        self.say(lambda: self.sim.store.call("run/submit", 0, run, spec.lane, spec.to_wire(), options))

    def seal(self) -> None:
        """The next call of such a submit, or the last; one whose client died is never made."""
        if not self.unsealed:
            return
        run, parents = self.unsealed.pop()
        if self.sim.chance.random() < 0.2:
            return
        if self.undecided:
            parents = [*self._some_runs(2), *self._parents(2)]
        last = self.sim.chance.random() < 0.5
        now, later = (parents, []) if last else (parents[:1], parents[1:])
        self.say(lambda: self.sim.store.call("run/add_dependencies", 0, run, int(last), 30_000 * len(parents), *now))
        if not last:
            self.unsealed.append((run, later))

    def cancel(self) -> None:
        chance = self.sim.chance
        for run in self._some_runs(1, ended=False):
            self.say(partial(self.sim.queue.cancel, run, stop_ms=chance.choice((10, 3_000, 60_000))))

    def wake(self) -> None:
        for run in self._some_runs(1, ended=False):
            self.say(partial(self.sim.queue.wake, run))

    def signal(self) -> None:
        """What it says is the operation, so that the model knows each."""
        chance, queue, operation = self.sim.chance, self.sim.queue, self.sim.nonce()
        for run in self._some_runs(1, ended=False):
            name = chance.choice(("a", "b", "c"))
            self.say(partial(queue.signal, run, name, operation, operation=operation))

    def requeue(self) -> None:
        for run in self._some_runs(1, ended=True):
            self.say(partial(self.sim.queue.requeue, run, operation=self.sim.nonce()))

    def forget(self) -> None:
        """Delete ended runs before their time, in the state that they were last seen in."""
        runs = self.sim.model.runs
        seen = [(run, State(runs[run].state if run in runs else "failed")) for run in self._some_runs(3, ended=True)]
        self.say(lambda: self.sim.queue.forget(seen))

    # ---- plans

    def plan(self) -> None:
        """A plan without its tasks, which come one by one."""
        name, policy = self.sim.nonce(), self.sim.chance.choice(("skip", "run", "fail-plan"))
        if len(self.sim.model.plans) < PLANS_MOST:
            self.say(lambda: self.sim.store.call("plan/create", 0, f"p-{name}", "p", policy, 1, "", "", ""))

    def seal_plan(self) -> None:
        for plan in self._some_plan():
            self.say(lambda: self.sim.store.call("plan/seal", 0, plan))  # noqa: B023 - there is one at the most

    def halt(self) -> None:
        for plan in self._some_plan():
            self.say(lambda: self.sim.store.call("plan/cancel", 0, plan, "enough"))  # noqa: B023

    def retry(self) -> None:
        which, op = self.sim.chance.choice(("failed", "all", "skipped")), self.sim.nonce()
        for plan in self._some_plan():
            self.say(lambda: self.sim.store.call("plan/retry", 0, plan, which, op))  # noqa: B023

    def task(self) -> None:
        """One more task of a plan, which needs some of those that it has."""
        chance, run = self.sim.chance, self.sim.run_id()
        if self.is_crowded:
            return
        for plan in self._some_plan():
            tasks = list(self.sim.model.plans[plan].tasks.values())
            spec = self._spec().model_copy(update={"dedupe_key": None, "if_live": "return", "dedupe_ttl_ms": None})
            fields = spec.model_dump(exclude_unset=True, exclude_none=True)
            fields = {name: each for name, each in fields.items() if name not in ("debounce_max_ms", "parent", "after")}
            needs = chance.sample(tasks, min(len(tasks), chance.choice((0, 1, 1, 2))))
            fields |= {"plan": plan, "task": f"t{chance.randrange(9)}", "after": tuple(needs)}
            made = RunSpec.model_validate(fields)
            self.say(lambda: self.sim.queue.submit(made, run_id=run))  # noqa: B023

    def _some_plan(self) -> list[str]:
        """One plan, if there is any."""
        plans = list(self.sim.model.plans)
        return [self.sim.chance.choice(plans)] if plans else []

    # ---- operators

    def begin(self) -> None:
        chance, operation = self.sim.chance, self.sim.nonce()
        name, fork = chance.choice(SESSIONS), chance.choice((None, None, "s1"))
        folder = "web" if name == "s2" else None
        self.say(lambda: self.sim.sessions.new(name, "claude", cwd=folder, fork=fork, operation=operation))

    def close(self) -> None:
        name, cancel = self.sim.chance.choice(SESSIONS), self.sim.chance.random() < 0.5
        self.say(lambda: self.sim.sessions.close(name, cancel=cancel))

    def limit(self) -> None:
        limits, chance = self.sim.limits, self.sim.chance
        key, most = chance.choice(LIMITS), chance.choice((0, 1, 1, 2, 3))
        self.say(lambda: limits.set(key, most=most))

    def unlimit(self) -> None:
        key = self.sim.chance.choice(LIMITS)
        self.say(lambda: self.sim.limits.remove(key))

    def shut(self) -> None:
        key, until = self.sim.chance.choice(LIMITS), self.sim.now_ms + self.sim.chance.choice((0, 500, 5_000, 50_000))
        self.say(lambda: self.sim.limits.shut(key, until))

    def pause(self) -> None:
        queue = self.sim.chance.choice(("default", "slow", "*"))
        verb = self.sim.queues.pause if self.sim.chance.random() < 0.4 else self.sim.queues.resume
        self.say(lambda: verb(queue))

    def weigh(self) -> None:
        weight = self.sim.chance.choice((1, 0.5, 3))
        self.say(lambda: self.sim.queues.weigh("default", "x", weight))

    @property
    def is_crowded(self) -> bool:
        runs = self.sim.model.runs
        return len(runs) >= KNOWN_MOST or sum(not life.ended for life in runs.values()) >= LIVE_MOST

    def _some_runs(self, most: int, *, ended: bool | None = None) -> list[str]:
        """Runs to speak of; now and then of some that are forgotten, or in no state for it."""
        known = [life.id for life in self.sim.model.runs.values() if ended is None or life.ended == ended]
        if not known or self.sim.chance.random() < 0.1:
            known = self.sim.known
        return self.sim.chance.sample(known, min(most, len(known)))

    def _parents(self, most: int) -> list[str]:
        """Often the same few, so that some runs have many dependents."""
        oldest = [life.id for life in self.sim.model.runs.values() if not life.ended][:3]
        if oldest and self.sim.chance.random() < 0.6:
            return self.sim.chance.sample(oldest, min(most, len(oldest)))
        return self._some_runs(most)

    def _spec(self) -> RunSpec:
        chance = self.sim.chance
        fields: dict[str, Any] = {
            "queue": chance.choice(QUEUES),
            "keep_ms": chance.choice((60_000, 60_000, 65_000, 120_000)),
        }
        for likely, name, value in FIELDS:
            if chance.random() < likely * self.sim.richness:
                fields[name] = value(self.sim)
        if chance.random() < 0.3 * self.sim.richness:
            fields["after"] = tuple(self._parents(chance.choice((1, 1, 2, 3))))
        if chance.random() < 0.3 * self.sim.richness:
            fields["parent"] = next(iter(self._parents(1)), None)
            fields["children"] = chance.choice(("cancel", "cancel", "leave"))
        if fields.get("if_live", "return") in ("return", "reject") and "dedupe_key" in fields and chance.random() < 0.4:
            fields["dedupe_ttl_ms"] = chance.choice((30_000, 120_000))
        elif fields.get("if_live") == "debounce":
            fields |= {"delay_ms": 4_000, "debounce_max_ms": 9_000} if chance.random() < 0.7 else {"delay_ms": 2_000}
        if chance.random() < 0.5 * self.sim.richness:
            session = chance.choice((None, "s1", "s1", "s2"))
            fields |= {"session": session} if session else {}
            return RunSpec(kind="agent", agent="claude", prompt=str(chance.random()), **fields)
        if chance.random() < 0.4:
            return RunSpec(kind="function", function="some:thing", args=(chance.random(),), **fields)
        return RunSpec(kind="command", argv=(str(chance.random()),), **fields)
