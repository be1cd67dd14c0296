"""Attempts that ask for children: for as much as they have themselves, or in some field for other things or for more.

Some who submit have a token of some queues only: what their runs are given of others is read in their name. All this
has chance of its own, so that a seed without it does the same as if it were not there.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from simulation.rights import demands_of, permitted, references, turn_of

from agentq.coordinator.errors import NotAllowed, NotFound, Unreachable
from agentq.coordinator.model.agent_options import AgentBudgets, AgentTurnOptions
from agentq.coordinator.model.spec import ResourceLimits, RunSpec
from agentq.coordinator.model.workspace import WorkspaceSpec
from agentq.coordinator.runs.queries import RunQueries
from agentq.coordinator.runs.verbs import Claim
from agentq.coordinator.token_context import use_token
from agentq.server.auth.access_control import Principal
from agentq.server.http.problems import Denied
from agentq.server.submission import _check_referenced_queues

if TYPE_CHECKING:
    from simulation.simulator import Simulator

    from agentq.server.service import ServerService

TOKENS: tuple[tuple[str, ...], ...] = ((), (), ("t1", "default"), ("t2", "slow"), ("t3", "default", "slow"))
"""Who asks, and for which queues their token is good."""
BUSY = (0, 0, 0, 0.3)
CHILDREN, RUNS_MOST = 50, 40
ALL = ("agent:claude", "agent:codex", "command", "function")
KINDS: dict[str, dict[str, Any]] = {
    "agent:claude": {"kind": "agent", "agent": "claude", "prompt": "x"},
    "agent:codex": {"kind": "agent", "agent": "codex", "prompt": "x"},
    "command": {"kind": "command", "argv": ("true",)},
    "function": {"kind": "function", "function": "some:thing"},
}
TREE = WorkspaceSpec(repository="/srv/shop", base="main")
WORKSPACES = (None, TREE, TREE.model_copy(update={"push": True}))
VALUES: dict[str, tuple[Any, ...]] = {
    "may_submit": (None, (), ("command",), ("agent:codex", "command"), ALL, ALL, ALL),
    "queue": ("default", "slow"),
    "priority": (0, 5, 9),
    "fair_key": (None, "x", "y"),
    "demands": ({}, {"gpu": "1"}),
    "limits": ({}, {"a": 1}, {"b": 1}, {"a": 1, "b": 1}),
    "timeout_ms": (None, 1_000, 5_000),
    "silence_timeout_ms": (None, 1_000, 5_000),
    "stop_grace_ms": (5_000, 10_000, 20_000),
    "keep_ms": (60_000, 90_000, 120_000),
    "caps": (None, *(ResourceLimits(nice=nice, memory_bytes=1_000 * nice, umask=0o77) for nice in (3, 4)),
             ResourceLimits(umask=0o22)),
    "env": ({}, {"MINE": "1"}, {"MINE": "2", "OURS": "1"}),
    "cwd": (None, "web", "web/js", "webs", "web/../api"),
    "workspace": WORKSPACES,
}  # fmt: skip
"""What runs may be given, and children ask for."""
OPTIONS: dict[str, tuple[Any, ...]] = {
    "permissions": ("read", "edit", "full"),
    "trust": ("none", "repo"),
    "account": (None, "home"),
    "budgets": (None, AgentBudgets(cost_usd=2), AgentBudgets(cost_usd=2.5, turns=3), AgentBudgets(tokens=9)),
}

ASKED = (*VALUES, *OPTIONS, *OPTIONS, "limits", "dedupe_key")


class Families:
    """Those who submit runs with bounds, and the attempts that ask for children of theirs."""

    def __init__(self, sim: Simulator) -> None:
        self.sim = sim
        self.chance = random.Random(f"{sim.seed} families")
        self.busy = self.chance.choice(BUSY)
        self._records = RunQueries(sim.store)

    @property
    def wants_to_act(self) -> bool:
        return self.chance.random() < self.busy

    def act(self) -> None:
        """One of them does something."""
        roll, claims = self.chance.random(), self._claims()
        if claims and roll < 0.2:
            self.read(self.chance.choice(claims))
        elif claims and roll < 0.75:
            self.bear(max(self.chance.choices(claims, k=3), key=self._bounds))
        elif not self.sim.clients.is_crowded:
            self.found()

    def _bounds(self, claim: Claim) -> int:
        """How much a run is bounded in: the more, the more there is to go beyond."""
        life = self.sim.model.runs.get(claim.id)
        return len(life.asked.model_fields_set) if life is not None else 0

    def _claims(self) -> list[Claim]:
        """What the workers believe to hold: mostly only those that may have children."""
        claims = [hold.claim for worker in self.sim.workers for hold in worker.held.values()]
        if self.chance.random() < 0.1:
            return claims
        runs = self.sim.model.runs
        return [claim for claim in claims if claim.id in runs and permitted(runs[claim.id].asked)]

    # ---- submits

    def found(self) -> None:
        """Submit a run with bounds. A token of some queues names none but what is in them."""
        token = self.chance.choice(TOKENS)
        spec, run = self._founder(), self.sim.run_id()
        if not token or self._may_name(token, spec):
            self._say(token, lambda: self.sim.queue.submit(spec, run_id=run))

    def bear(self, claim: Claim) -> None:
        """An attempt asks for a child; whoever sends its words may have a token of other queues than its run."""
        runs = self.sim.model.runs
        life = runs.get(claim.id)
        if life is None or len(runs) >= RUNS_MOST:
            return
        spec = self._child(self.sim.model.bounds_of(life), claim.id)
        run, options = self.sim.run_id(), spec.to_submit_options() | {"fence": claim.fence, "max_children": CHILDREN}
        words = (run, spec.lane, spec.to_wire(), json.dumps(options))
        self._say(self.chance.choice(TOKENS), lambda: self.sim.store.call("run/submit", 0, *words))

    def _may_name(self, token: tuple[str, ...], spec: RunSpec) -> bool:
        """What the server says of the runs that a submit names, which is what the model says."""
        caller = Principal(token[0], token[0], frozenset(), token[1:])
        service = cast("ServerService", SimpleNamespace(run_queries=self._records))
        runs = self.sim.model.runs
        named = {*references(spec), *filter(None, (spec.parent,))}
        foreign = [other for other in named if other not in runs or runs[other].queue not in token[1:]]
        try:
            _check_referenced_queues(service, caller, [spec])
            answer = ""
        except (Denied, NotFound) as refused:
            answer = str(refused)
        assert bool(answer) == bool(foreign), f"{token} named {named}, of which {foreign} are not for it: {answer!r}"
        return not foreign

    def _say(self, token: tuple[str, ...], what: Callable[[], object]) -> None:
        """In the name of a token, now and when it is said again."""

        def said() -> object:
            if not token:
                return what()
            with use_token(*token):
                return what()

        self.sim.clients.say(said)

    # ---- what a run is given of others

    def read(self, claim: Claim) -> None:
        """Ask for results of other runs, in the name of whoever submitted the run that names them."""
        model = self.sim.model
        named = self._some_runs(3)
        queues = model.readable_by(claim.id)
        denied = [other for other in named if other in model.runs and queues and model.runs[other].queue not in queues]
        try:
            found = [record.id for record in self.sim.queue.given(claim, named)]
        except NotAllowed:
            found = None
        except Unreachable:
            return
        expected = None if denied else [other for other in named if other in model.runs]
        assert found == expected, f"{claim.id} may read {queues or 'all'}, and was given {found}, not {expected}"

    # ---- specs

    def _some_runs(self, most: int) -> list[str]:
        known = self.sim.known if self.chance.random() < 0.1 else list(self.sim.model.runs)
        return self.chance.sample(known, min(most, len(known)))

    def _founder(self) -> RunSpec:
        """A run that has some of everything."""
        chance = self.chance
        fields = {name: chance.choice(values) for name, values in VALUES.items() if chance.random() < 0.5}
        fields |= {"keep_ms": chance.choice(VALUES["keep_ms"]), "may_submit": chance.choice(VALUES["may_submit"])}
        what = chance.choice(("agent:claude", "agent:claude", "agent:codex", "command", "function"))
        if what.startswith("agent") and chance.random() < 0.8:
            fields["turn"] = AgentTurnOptions(**{name: chance.choice(each) for name, each in OPTIONS.items()})
        return _fitting(KINDS[what] | fields | self._named(what, 0.3))

    def _named(self, what: str, likely: float, parent: str | None = None) -> dict[str, Any]:
        """A way to name other runs, if it names any; of a child, half the time some of its parent's children."""
        if self.chance.random() >= likely:
            return {}
        siblings = [life.id for life in self.sim.model.runs.values() if life.options.get("parent") == parent]
        runs = siblings[:2] if parent and self.chance.random() < 0.5 else self._some_runs(2)
        ways: list[dict[str, Any]] = [{"after": tuple(runs), "on_failed": "run"}]
        if what == "function":
            ways.append({"args": ({"deep": [{"$run": run} for run in runs]},)})
        else:
            ways.append({"inputs": {f"i{place}": run for place, run in enumerate(runs)}})
        if runs and parent is None:
            ways.append({"parent": runs[0]})
        return self.chance.choice(ways)

    def _child(self, own: RunSpec, parent: str) -> RunSpec:
        """As its parent, but for what it asks for."""
        chance, kinds = self.chance, sorted(permitted(own))
        what = chance.choice(kinds) if kinds and chance.random() < 0.9 else chance.choice(ALL)
        fields: dict[str, Any] = KINDS[what] | {name: getattr(own, name) for name in VALUES}
        fields |= {"demands": demands_of(own), "may_submit": tuple(kinds), "parent": parent}
        options = {name: getattr(turn_of(own), name) for name in OPTIONS}
        for name in chance.sample(ASKED, chance.choice((0, 1, 1, 1, 2))):
            if name in OPTIONS:
                options[name] = chance.choice(OPTIONS[name])
            else:
                fields[name] = chance.choice(VALUES.get(name, ("a", "b")))
        if what.startswith("agent"):
            fields["turn"] = AgentTurnOptions(**options)
        return _fitting(fields | self._named(what, 0.2, parent))


def _fitting(fields: dict[str, Any]) -> RunSpec:
    """A spec without what its kind cannot have."""
    workspace = fields.get("workspace") if fields["kind"] != "function" else None
    fields |= {"workspace": workspace}
    if workspace is not None and ".." in (fields.get("cwd") or ""):
        fields["cwd"] = None
    return RunSpec(**fields)
