"""Foreign runners as workers of ours: who is registered, and the lease that is kept on behalf of each.

A runner knows nothing of leases, epochs and fences: it has an id, and asks. So the server is a worker for it: it
registers, sends heartbeats, claims and reports, with the same scripts. What it needs for that stands in Redis: the
registration under the runner's own key, epoch and held runs under the worker's. Any server can serve the next request,
and a restart of all of them is noticed by nobody. What is kept in the process only saves round trips.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from zlib import crc32

from pydantic import JsonValue

from agentq.coordinator.bounds import FOREIGN_EVENT_BYTES, FOREIGN_RUNNER_MS
from agentq.coordinator.config.settings import Settings
from agentq.coordinator.errors import AgentqError, Duplicate, Evicted, Invalid, NotAllowed, NotFound, Refused
from agentq.coordinator.model.ids import partition_of
from agentq.coordinator.runs.queries import RunQueries, WorkerRecord
from agentq.coordinator.runs.verbs import Claim, RunVerbs
from agentq.coordinator.security.tokens import Tokens
from agentq.coordinator.storage.connection import CommandArgument
from agentq.coordinator.storage.store import NamespaceStore
from agentq.coordinator.workers.identity import WorkerIdentity
from agentq.coordinator.workers.lease import WorkerLease, replace_worker
from agentq.dialects.agent_orchestrator.blueprints.store import BlueprintStore
from agentq.dialects.agent_orchestrator.runners.registration import RunnerRegistration
from agentq.dialects.agent_orchestrator.runners.server_liveness import ServerLiveness
from agentq.dialects.agent_orchestrator.runners.snapshot import GIVEN_PREFIX, RunnerSnapshot, parse_snapshot
from agentq.dialects.agent_orchestrator.timing import RunnerTiming

LEASES_KEPT = 20_000
ACTIVE_MS = 5_000
"""A runner that polled so lately is alive; nobody takes its place."""
ARRIVAL_GRACE_MS = 3_000
"""The same of one that has registered and is about to poll: two processes that start together are not both let in."""
ARRIVING_FACT = "arriving_until_ms"
"""The fact about a runner until when it counts as about to poll."""
LEFT_FACT = "left_at_ms"
"""The fact about a runner that it was told that it is deregistered."""


class RunnerNotRegistered(NotFound):
    """Runner not registered"""


class DuplicateRunner(Refused):
    """Another process with that identity polls at this very moment."""

    def __init__(self, runner: str, registration: RunnerRegistration, *, here: bool) -> None:
        self.here = here
        """Whether it polls at this very server; another may be gone, which is known some seconds later."""
        super().__init__(f"A runner with this identity is at work already, as {runner}.")
        self.detail: dict[str, JsonValue] = {
            "error": "duplicate_runner",
            "message": str(self),
            "runner_id": runner,
            "hostname": registration.hostname,
            "project_dir": registration.project_dir,
            "executor_profile": registration.executor_profile or registration.executor_type,
            "executor_type": registration.executor_type,
        }


class AgentNameCollision(Refused):
    """Another runner has brought an agent of that name along."""

    def __init__(self, agent: str, runner: str) -> None:
        super().__init__(f"The agent {agent} is brought along by the runner {runner} already; give it another name.")
        self.detail: dict[str, JsonValue] = {
            "error": "agent_name_collision",
            "message": str(self),
            "agent_name": agent,
            "existing_runner_id": runner,
        }


@dataclass(slots=True)
class _CachedRunner:
    """What this process remembers of a runner."""

    lease: WorkerLease
    body: str
    claims: dict[str, tuple[Claim, str]] = field(default_factory=dict)
    """Runs that it was given here, each with its session."""
    timeouts_ms: dict[str, int] = field(default_factory=dict)
    """For how long those of them may run that have a limit."""


class RunnerRegistry:
    """The runners of a namespace."""

    def __init__(
        self,
        store: NamespaceStore,
        settings: Settings,
        timing: RunnerTiming,
        shelf: BlueprintStore,
        presence: ServerLiveness,
    ) -> None:
        self.store = store
        self.presence = presence
        self.shelf = shelf
        self.queue = RunVerbs(store)
        self.records = RunQueries(store)
        self.timing = timing
        lease_ms = max(timing.lease_ms, settings.lease_ms)
        self._settings = settings.model_copy(update={"lease_ms": lease_ms})
        self._kept: OrderedDict[str, _CachedRunner] = OrderedDict()

    # ---- coming and going

    def register(self, registration: RunnerRegistration, token: str = "") -> str:
        """Take a runner in; one that has the same identity and is gone has its place taken, runs and all.

        `token` is what it is bound to: only whoever shows that may speak for it, and take its place.
        """
        runner = registration.runner_id()
        before = self._glance(runner)
        if before is not None:
            former = before.fields.get("token", "")
            if token and former != token and self._is_owned(before):
                raise NotAllowed(
                    f"This identity was registered with another token; DELETE /runners/{runner} lets it go."
                )
            is_revoked = bool(token and former) and former != token
            if not is_revoked and self._is_at_work(before):
                raise DuplicateRunner(runner, registration, here=before.fields.get("polls_at") == self.presence.server)
        agents = [agent.name for agent in registration.agents]
        self._check_agents(agents, runner)
        identity = registration.identity(runner)
        identity.check_size()
        body = registration.model_dump_json(exclude_none=True)
        if len(body) > FOREIGN_EVENT_BYTES:
            raise Invalid(f"A runner describes itself in {FOREIGN_EVENT_BYTES} bytes at the most, not {len(body)}.")
        if before is not None:
            self._oust(before)
        self._kept.pop(runner, None)
        lease = WorkerLease(self.store, identity, self._settings)
        lease.register()
        self.shelf.own(runner, registration)
        stale = {each.run: "" for each in before.given} if before is not None else {}
        now_ms = self.store.time_ms()
        self.presence.say()
        gone = {f"{GIVEN_PREFIX}{run}": "" for run in stale} | {"deregistered": "", LEFT_FACT: "", "scripts": ""}
        gone |= {"script_names": "", "polls_until_ms": ""}
        gone |= {ARRIVING_FACT: str(now_ms + ARRIVAL_GRACE_MS), "polls_at": self.presence.server}
        self.note(runner, **gone, body=body, token=token, registered_at_ms=str(now_ms))
        self._kept[runner] = _CachedRunner(lease, body)
        return runner

    def _is_at_work(self, look: RunnerSnapshot) -> bool:
        """Whether a process of this identity polls at this moment or is about to, at a server that is there."""
        until_ms = max(int(look.fields.get(name, 0)) for name in ("polls_until_ms", ARRIVING_FACT))
        return until_ms > look.now_ms and not look.leaving and self.presence.is_there(look.fields.get("polls_at", ""))

    def polls_until(self, at_ms: int) -> dict[str, str]:
        """The facts about a runner that it polls, here, until then."""
        return {"polls_until_ms": str(at_ms), "polls_at": self.presence.server}

    def _is_owned(self, look: RunnerSnapshot) -> bool:
        """Whether the token that a runner was registered with is still good; one without a token is somebody's, too."""
        token = look.fields.get("token", "")
        if not token:
            return True
        try:
            expires_at_ms = Tokens(self.store).get(token).expires_at_ms
        except NotFound:
            return False
        return expires_at_ms is None or expires_at_ms > look.now_ms

    def _check_agents(self, agents: Iterable[str], runner: str) -> None:
        """Refuse agents that another runner, which is there, has brought along."""
        for agent in agents:
            owner = self.shelf.owner(agent)
            look = self._glance(owner) if owner is not None and owner != runner else None
            if look is not None and look.registered:
                raise AgentNameCollision(agent, look.runner)

    def _oust(self, before: RunnerSnapshot) -> None:
        for partition, epoch in enumerate(before.epochs):
            if epoch:
                replace_worker(self.store, partition, before.runner, epoch, "its runner was started again")

    def leave(self, runner: str) -> None:
        """The runner itself goes: what it holds is released, and it is known no longer."""
        look = self.look(runner)
        lease = self.lease(look)
        lease.deregister()
        self.shelf.disown(look.registration)
        self.note(runner, **dict.fromkeys(look.fields, ""))
        self._kept.pop(runner, None)

    def dismiss(self, runner: str) -> None:
        """Somebody else wants it gone: it gets no more runs, and is told with its next poll."""
        look = self.look(runner)
        self.note(runner, deregistered=str(look.now_ms))

    def let_go(self, look: RunnerSnapshot) -> None:
        """It is told so at this moment: it is listed no longer, and is no worker once it holds nothing."""
        if LEFT_FACT not in look.fields:
            self.note(look.runner, **{LEFT_FACT: str(look.now_ms)})
        if look.registered and not look.holds:
            self.lease(look).deregister()

    def everyone(self) -> list[tuple[WorkerRecord, RunnerRegistration, Mapping[str, str]]]:
        """The foreign runners among the workers."""
        found = []
        for worker in self.records.workers():
            if worker.partition == 0 and "runner" in worker.identity.about:
                look = self._glance(worker.id)
                if look is not None and LEFT_FACT not in look.fields:
                    found.append((worker, look.registration, look.fields))
        return found

    # ---- what is known

    def look(self, runner: str) -> RunnerSnapshot:
        """All that is known of a runner."""
        found = self._glance(runner)
        if found is None:
            raise RunnerNotRegistered("Runner not registered")
        return found

    def known(self, runner: str) -> RunnerSnapshot:
        """The same, where what is asked for is the runner and not asked by it."""
        found = self._glance(runner)
        if found is None:
            raise NotFound("Runner not found")
        return found

    def look_all(self, runners: Sequence[str]) -> list[RunnerSnapshot | None]:
        """All that is known of several, together."""
        told = self.store.call_together("dialect/get_runners", ((each, runners) for each in self.store.partitions()))
        return [parse_snapshot(runner, of_it, self.home(runner)) for runner, *of_it in zip(runners, *told, strict=True)]

    def _glance(self, runner: str) -> RunnerSnapshot | None:
        return self.look_all([runner])[0]

    def home(self, runner: str) -> int:
        """The partition that a runner's own key lives in."""
        return crc32(runner.encode()) % self.store.keyspace.partitions

    def note(self, runner: str, /, **fields: str) -> None:
        """Keep facts about a runner; an empty one goes."""
        self.note_all([(runner, fields)])

    def note_all(self, facts: Sequence[tuple[str, Mapping[str, str]]]) -> None:
        """The same of several, together."""
        rows: dict[int, list[CommandArgument]] = {}
        for runner, fields in facts:
            for fact in fields.items():
                rows.setdefault(self.home(runner), []).extend((runner, *fact))
        # There is nothing that it refuses.
        self.store.call_together(
            "dialect/set_fields", ((home, ("runner", FOREIGN_RUNNER_MS, *words)) for home, words in rows.items())
        )

    # ---- acting for it

    def who_is(self, runner: str) -> WorkerIdentity | None:
        """The worker that a runner is which has been looked at here."""
        kept = self._kept.get(runner)
        return kept.lease.identity if kept is not None else None

    def who(self, look: RunnerSnapshot) -> WorkerIdentity:
        """The worker that a runner is."""
        return self._seat(look).lease.identity

    def lease(self, look: RunnerSnapshot) -> WorkerLease:
        """The lease that is kept for a runner. One that was lost begins anew: a runner that asks is never refused."""
        lease = self._seat(look).lease
        if not look.registered:
            self._come_back(lease, look.runner)
        else:
            lease.go_on(look.epochs)
        return lease

    def _seat(self, look: RunnerSnapshot) -> _CachedRunner:
        kept = self._kept.get(look.runner)
        if kept is None or kept.body != look.fields["body"]:
            lease = WorkerLease(self.store, look.registration.identity(look.runner), self._settings)
            kept = self._kept[look.runner] = _CachedRunner(lease, look.fields["body"])
            while len(self._kept) > LEASES_KEPT:
                self._kept.popitem(last=False)
        return kept

    def _come_back(self, lease: WorkerLease, runner: str) -> None:
        try:
            lease.register()
        except Duplicate:
            # Another server was faster; its registration is as good.
            again = self.look(runner)
            if not again.registered:
                raise
            lease.go_on(again.epochs)

    def is_worn(self, look: RunnerSnapshot) -> bool:
        """Whether enough of a lease is gone to renew it with whatever shows that the runner is alive."""
        return look.lease_until_ms - look.now_ms < self._settings.lease_ms * 3 // 4

    def beat(self, look: RunnerSnapshot) -> None:
        """Renew the lease of a runner: it was heard of. It names nothing, so all that it holds is named for it."""
        if LEFT_FACT in look.fields:
            return  # what it still holds goes to others when its lease has run out
        lease = self.lease(look)
        held = [hold.claim for hold in look.holds]
        try:
            beat = lease.heartbeat(held)
        except Evicted:
            self._come_back(lease, look.runner)
            return
        if any(order.order == "hurry" for order in beat.orders):
            for claim in held:
                with suppress(Refused, NotFound):  # it has left this runner's hands by itself
                    self.queue.release(claim, "its runner is to leave")
        if beat.orders:
            # What there is to be told of is read from the runs themselves, as often as it takes.
            lease.heartbeat(held, beat.orders)

    def claim_of(self, runner: str, run: str) -> Claim | None:
        """The present attempt of a run, if this runner holds it."""
        at_hand = self.at_hand(runner, run)
        if at_hand is not None:
            return at_hand
        fields = self.store.connection.command("HGET", self.store.key(partition_of(run), "worker_runs", runner), run)
        return Claim(run, str(fields).split(" ")[0], "", "") if fields else None

    def at_hand(self, runner: str, run: str) -> Claim | None:
        """The attempt that the runner was given here, if it was."""
        found = self.given_here(runner, run)
        return found[0] if found is not None else None

    def given_here(self, runner: str, run: str) -> tuple[Claim, str] | None:
        """The same, and its session."""
        kept = self._kept.get(runner)
        return kept.claims.get(run) if kept is not None else None

    def claim_all(self, looks: Sequence[RunnerSnapshot]) -> list[list[Claim] | AgentqError]:
        """A run for each of these runners, in the only partition; or why there is none."""
        leases = [self.lease(look) for look in looks]
        before = [lease.lanes(0) for lease in leases]
        replies = self.store.call_together("worker/claim", [(0, lease.claiming(1)) for lease in leases])
        found: list[list[Claim] | AgentqError] = []
        for lease, lanes, reply in zip(leases, before, replies, strict=True):
            try:
                claims = lease.claimed(reply)
                # A lane that was opened since the last call is tried at once.
                found.append(claims if claims or lease.lanes(0) == lanes else lease.claim(1))
            except AgentqError as refused:
                found.append(refused)
        return found

    def remember(self, runner: str, claim: Claim, session: str, timeout_ms: int | None = None) -> None:
        """Keep a claim at hand for what the runner is about to say of it, and for how long the run may run."""
        kept = self._kept.get(runner)
        if kept is None:
            return
        kept.claims[claim.id] = (claim, session)
        if timeout_ms is not None:
            kept.timeouts_ms[claim.id] = timeout_ms

    def timeouts_of(self, runner: str) -> Mapping[str, int]:
        """For how long the runs may run that the runner was given here, of those that have a limit."""
        kept = self._kept.get(runner)
        return dict(kept.timeouts_ms) if kept is not None else {}

    def forget(self, runner: str, run: str) -> str | None:
        """It is at hand no longer; its session, if it was."""
        kept = self._kept.get(runner)
        if kept is None:
            return None
        kept.timeouts_ms.pop(run, None)
        found = kept.claims.pop(run, None)
        return found[1] if found is not None else None
