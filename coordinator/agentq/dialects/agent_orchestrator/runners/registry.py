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

from agentq.coordinator.bounds import DIALECT_EVENT_BYTES, DIALECT_RUNNER_MS
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
ARRIVING_FIELD = "arriving_until_ms"
"""The fact about a runner until when it counts as about to poll."""
LEFT_FIELD = "left_at_ms"
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
        blueprints: BlueprintStore,
        server_liveness: ServerLiveness,
    ) -> None:
        self.store = store
        self.server_liveness = server_liveness
        self.blueprints = blueprints
        self.run_verbs = RunVerbs(store)
        self.run_queries = RunQueries(store)
        self.timing = timing
        lease_ms = max(timing.lease_ms, settings.lease_ms)
        self._settings = settings.model_copy(update={"lease_ms": lease_ms})
        self._cache: OrderedDict[str, _CachedRunner] = OrderedDict()

    # ---- coming and going

    def register(self, registration: RunnerRegistration, token: str = "") -> str:
        """Take a runner in; one that has the same identity and is gone has its place taken, runs and all.

        `token` is what it is bound to: only whoever shows that may speak for it, and take its place.
        """
        runner = registration.runner_id()
        before = self._read_snapshot(runner)
        if before is not None:
            former = before.fields.get("token", "")
            if token and former != token and self._is_owned(before):
                raise NotAllowed(
                    f"This identity was registered with another token; DELETE /runners/{runner} lets it go."
                )
            is_revoked = bool(token and former) and former != token
            if not is_revoked and self._is_polling(before):
                raise DuplicateRunner(
                    runner, registration, here=before.fields.get("polls_at") == self.server_liveness.server
                )
        agents = [agent.name for agent in registration.agents]
        self._check_agents(agents, runner)
        identity = registration.identity(runner)
        identity.check_size()
        body = registration.model_dump_json(exclude_none=True)
        if len(body) > DIALECT_EVENT_BYTES:
            raise Invalid(f"A runner describes itself in {DIALECT_EVENT_BYTES} bytes at the most, not {len(body)}.")
        if before is not None:
            self._replace_former(before)
        self._cache.pop(runner, None)
        lease = WorkerLease(self.store, identity, self._settings)
        lease.register()
        self.blueprints.add_owned_agents(runner, registration)
        stale = {each.run: "" for each in before.given_runs} if before is not None else {}
        now_ms = self.store.time_ms()
        self.server_liveness.announce()
        cleared = {f"{GIVEN_PREFIX}{run}": "" for run in stale} | {"deregistered": "", LEFT_FIELD: "", "scripts": ""}
        cleared |= {"script_names": "", "polls_until_ms": ""}
        cleared |= {ARRIVING_FIELD: str(now_ms + ARRIVAL_GRACE_MS), "polls_at": self.server_liveness.server}
        self.set_fields(runner, **cleared, body=body, token=token, registered_at_ms=str(now_ms))
        self._cache[runner] = _CachedRunner(lease, body)
        return runner

    def _is_polling(self, snapshot: RunnerSnapshot) -> bool:
        """Whether a process of this identity polls at this moment or is about to, at a server that is there."""
        until_ms = max(int(snapshot.fields.get(name, 0)) for name in ("polls_until_ms", ARRIVING_FIELD))
        return (
            until_ms > snapshot.now_ms
            and not snapshot.is_deregistered
            and self.server_liveness.is_alive(snapshot.fields.get("polls_at", ""))
        )

    def poll_fields(self, at_ms: int) -> dict[str, str]:
        """The facts about a runner that it polls, here, until then."""
        return {"polls_until_ms": str(at_ms), "polls_at": self.server_liveness.server}

    def _is_owned(self, snapshot: RunnerSnapshot) -> bool:
        """Whether the token that a runner was registered with is still good; one without a token is somebody's, too."""
        token = snapshot.fields.get("token", "")
        if not token:
            return True
        try:
            expires_at_ms = Tokens(self.store).get(token).expires_at_ms
        except NotFound:
            return False
        return expires_at_ms is None or expires_at_ms > snapshot.now_ms

    def _check_agents(self, agents: Iterable[str], runner: str) -> None:
        """Refuse agents that another runner, which is there, has brought along."""
        for agent in agents:
            owner = self.blueprints.find_owner(agent)
            snapshot = self._read_snapshot(owner) if owner is not None and owner != runner else None
            if snapshot is not None and snapshot.is_registered:
                raise AgentNameCollision(agent, snapshot.runner)

    def _replace_former(self, before: RunnerSnapshot) -> None:
        for partition, epoch in enumerate(before.epochs):
            if epoch:
                replace_worker(self.store, partition, before.runner, epoch, "its runner was started again")

    def deregister(self, runner: str) -> None:
        """The runner itself goes: what it holds is released, and it is known no longer."""
        snapshot = self.get_snapshot(runner)
        lease = self.lease(snapshot)
        lease.deregister()
        self.blueprints.remove_owned_agents(snapshot.registration)
        self.set_fields(runner, **dict.fromkeys(snapshot.fields, ""))
        self._cache.pop(runner, None)

    def mark_deregistered(self, runner: str) -> None:
        """Somebody else wants it gone: it gets no more runs, and is told with its next poll."""
        snapshot = self.get_snapshot(runner)
        self.set_fields(runner, deregistered=str(snapshot.now_ms))

    def finish_deregistration(self, snapshot: RunnerSnapshot) -> None:
        """It is told so at this moment: it is listed no longer, and is no worker once it holds nothing."""
        if LEFT_FIELD not in snapshot.fields:
            self.set_fields(snapshot.runner, **{LEFT_FIELD: str(snapshot.now_ms)})
        if snapshot.is_registered and not snapshot.held_runs:
            self.lease(snapshot).deregister()

    def list_runners(self) -> list[tuple[WorkerRecord, RunnerRegistration, Mapping[str, str]]]:
        """The foreign runners among the workers."""
        found = []
        for worker in self.run_queries.workers():
            if worker.partition == 0 and "runner" in worker.identity.about:
                snapshot = self._read_snapshot(worker.id)
                if snapshot is not None and LEFT_FIELD not in snapshot.fields:
                    found.append((worker, snapshot.registration, snapshot.fields))
        return found

    # ---- what is known

    def get_snapshot(self, runner: str) -> RunnerSnapshot:
        """All that is known of a runner."""
        found = self._read_snapshot(runner)
        if found is None:
            raise RunnerNotRegistered("Runner not registered")
        return found

    def find_snapshot(self, runner: str) -> RunnerSnapshot:
        """The same, where what is asked for is the runner and not asked by it."""
        found = self._read_snapshot(runner)
        if found is None:
            raise NotFound("Runner not found")
        return found

    def read_snapshots(self, runners: Sequence[str]) -> list[RunnerSnapshot | None]:
        """All that is known of several, together."""
        replies = self.store.call_together("dialect/get_runners", ((each, runners) for each in self.store.partitions()))
        return [
            parse_snapshot(runner, of_it, self.home_partition(runner))
            for runner, *of_it in zip(runners, *replies, strict=True)
        ]

    def _read_snapshot(self, runner: str) -> RunnerSnapshot | None:
        return self.read_snapshots([runner])[0]

    def home_partition(self, runner: str) -> int:
        """The partition that a runner's own key lives in."""
        return crc32(runner.encode()) % self.store.keyspace.partitions

    def set_fields(self, runner: str, /, **fields: str) -> None:
        """Keep facts about a runner; an empty one goes."""
        self.set_fields_batch([(runner, fields)])

    def set_fields_batch(self, changes: Sequence[tuple[str, Mapping[str, str]]]) -> None:
        """The same of several, together."""
        rows: dict[int, list[CommandArgument]] = {}
        for runner, fields in changes:
            for fact in fields.items():
                rows.setdefault(self.home_partition(runner), []).extend((runner, *fact))
        # There is nothing that it refuses.
        self.store.call_together(
            "dialect/set_fields", ((home, ("runner", DIALECT_RUNNER_MS, *words)) for home, words in rows.items())
        )

    # ---- acting for it

    def cached_identity(self, runner: str) -> WorkerIdentity | None:
        """The worker that a runner is which has been looked at here."""
        cached = self._cache.get(runner)
        return cached.lease.identity if cached is not None else None

    def get_identity(self, snapshot: RunnerSnapshot) -> WorkerIdentity:
        """The worker that a runner is."""
        return self._get_cached(snapshot).lease.identity

    def lease(self, snapshot: RunnerSnapshot) -> WorkerLease:
        """The lease that is kept for a runner. One that was lost begins anew: a runner that asks is never refused."""
        lease = self._get_cached(snapshot).lease
        if not snapshot.is_registered:
            self._register_again(lease, snapshot.runner)
        else:
            lease.go_on(snapshot.epochs)
        return lease

    def _get_cached(self, snapshot: RunnerSnapshot) -> _CachedRunner:
        cached = self._cache.get(snapshot.runner)
        if cached is None or cached.body != snapshot.fields["body"]:
            lease = WorkerLease(self.store, snapshot.registration.identity(snapshot.runner), self._settings)
            cached = self._cache[snapshot.runner] = _CachedRunner(lease, snapshot.fields["body"])
            while len(self._cache) > LEASES_KEPT:
                self._cache.popitem(last=False)
        return cached

    def _register_again(self, lease: WorkerLease, runner: str) -> None:
        try:
            lease.register()
        except Duplicate:
            # Another server was faster; its registration is as good.
            again = self.get_snapshot(runner)
            if not again.is_registered:
                raise
            lease.go_on(again.epochs)

    def needs_renewal(self, snapshot: RunnerSnapshot) -> bool:
        """Whether enough of a lease is gone to renew it with whatever shows that the runner is alive."""
        return snapshot.lease_until_ms - snapshot.now_ms < self._settings.lease_ms * 3 // 4

    def renew_lease(self, snapshot: RunnerSnapshot) -> None:
        """Renew the lease of a runner: it was heard of. It names nothing, so all that it holds is named for it."""
        if LEFT_FIELD in snapshot.fields:
            return  # what it still holds goes to others when its lease has run out
        lease = self.lease(snapshot)
        held = [hold.claim for hold in snapshot.held_runs]
        try:
            reply = lease.heartbeat(held)
        except Evicted:
            self._register_again(lease, snapshot.runner)
            return
        if any(order.order == "hurry" for order in reply.orders):
            for claim in held:
                with suppress(Refused, NotFound):  # it has left this runner's hands by itself
                    self.run_verbs.release(claim, "its runner is to leave")
        if reply.orders:
            # What there is to be told of is read from the runs themselves, as often as it takes.
            lease.heartbeat(held, reply.orders)

    def find_claim(self, runner: str, run: str) -> Claim | None:
        """The present attempt of a run, if this runner holds it."""
        cached = self.cached_claim(runner, run)
        if cached is not None:
            return cached
        fields = self.store.connection.command("HGET", self.store.key(partition_of(run), "worker_runs", runner), run)
        return Claim(run, str(fields).split(" ")[0], "", "") if fields else None

    def cached_claim(self, runner: str, run: str) -> Claim | None:
        """The attempt that the runner was given here, if it was."""
        found = self.cached_claim_and_session(runner, run)
        return found[0] if found is not None else None

    def cached_claim_and_session(self, runner: str, run: str) -> tuple[Claim, str] | None:
        """The same, and its session."""
        cached = self._cache.get(runner)
        return cached.claims.get(run) if cached is not None else None

    def claim_batch(self, snapshots: Sequence[RunnerSnapshot]) -> list[list[Claim] | AgentqError]:
        """A run for each of these runners, in the only partition; or why there is none."""
        leases = [self.lease(look) for look in snapshots]
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

    def cache_claim(self, runner: str, claim: Claim, session: str, timeout_ms: int | None = None) -> None:
        """Keep a claim at hand for what the runner is about to say of it, and for how long the run may run."""
        cached = self._cache.get(runner)
        if cached is None:
            return
        cached.claims[claim.id] = (claim, session)
        if timeout_ms is not None:
            cached.timeouts_ms[claim.id] = timeout_ms

    def cached_timeouts_ms(self, runner: str) -> Mapping[str, int]:
        """For how long the runs may run that the runner was given here, of those that have a limit."""
        cached = self._cache.get(runner)
        return dict(cached.timeouts_ms) if cached is not None else {}

    def drop_claim(self, runner: str, run: str) -> str | None:
        """It is at hand no longer; its session, if it was."""
        cached = self._cache.get(runner)
        if cached is None:
            return None
        cached.timeouts_ms.pop(run, None)
        found = cached.claims.pop(run, None)
        return found[1] if found is not None else None
