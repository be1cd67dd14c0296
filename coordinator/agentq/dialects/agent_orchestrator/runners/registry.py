"""The registry of runners. The server acts as a worker for each: it registers, renews the lease, claims and reports.

A runner knows no leases, epochs or fences: it has an id, and polls. The registration is stored under the runner's own
key, its epoch and held runs under the worker's. So any server can serve the next request, and runners do not notice a
restart of all servers. The cache in the process only saves round trips.
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
"""A runner that polled within this time is alive, and cannot be replaced."""
ARRIVAL_GRACE_MS = 3_000
"""How long a runner counts as polling after its registration, so that of two processes started together only one is
accepted."""
ARRIVING_FIELD = "arriving_until_ms"
"""The field of a runner: until when it counts as about to poll."""
LEFT_FIELD = "left_at_ms"
"""The field of a runner: when it was told that it is deregistered."""


class RunnerNotRegistered(NotFound):
    """Runner not registered"""


class DuplicateRunner(Refused):
    """Another process with this identity polls now."""

    def __init__(self, runner: str, registration: RunnerRegistration, *, here: bool) -> None:
        self.here = here
        """Whether it polls at this server. The death of another server is detected only after some seconds, so the
        caller retries."""
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
    """Another runner has brought an agent of this name along."""

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
    """The cached lease and claims of a runner."""

    lease: WorkerLease
    body: str
    claims: dict[str, tuple[Claim, str]] = field(default_factory=dict)
    """Runs that this process gave it, each with its session."""
    timeouts_ms: dict[str, int] = field(default_factory=dict)
    """The timeouts of these runs."""


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
        """Register a runner. A runner with the same identity that no longer polls is replaced, and its runs are
        released.

        `token` binds the runner: only requests with that token may act for it or replace it.
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
            raise Invalid(f"A runner describes itself in {DIALECT_EVENT_BYTES} bytes at most, not {len(body)}.")
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
        """Whether a process of this identity polls or is about to, at a server that is alive."""
        until_ms = max(int(snapshot.fields.get(name, 0)) for name in ("polls_until_ms", ARRIVING_FIELD))
        return (
            until_ms > snapshot.now_ms
            and not snapshot.is_deregistered
            and self.server_liveness.is_alive(snapshot.fields.get("polls_at", ""))
        )

    def poll_fields(self, at_ms: int) -> dict[str, str]:
        """The fields of a runner that polls at this server until `at_ms`."""
        return {"polls_until_ms": str(at_ms), "polls_at": self.server_liveness.server}

    def _is_owned(self, snapshot: RunnerSnapshot) -> bool:
        """Whether the registration's token is still valid. A registration without a token is owned, too."""
        token = snapshot.fields.get("token", "")
        if not token:
            return True
        try:
            expires_at_ms = Tokens(self.store).get(token).expires_at_ms
        except NotFound:
            return False
        return expires_at_ms is None or expires_at_ms > snapshot.now_ms

    def _check_agents(self, agents: Iterable[str], runner: str) -> None:
        """Refuse agents that another registered runner has brought along."""
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
        """Deregister a runner at its own request: its runs are released, and its record is deleted."""
        snapshot = self.get_snapshot(runner)
        lease = self.lease(snapshot)
        lease.deregister()
        self.blueprints.remove_owned_agents(snapshot.registration)
        self.set_fields(runner, **dict.fromkeys(snapshot.fields, ""))
        self._cache.pop(runner, None)

    def mark_deregistered(self, runner: str) -> None:
        """Deregister a runner at another client's request: it gets no more runs, and is told with its next poll."""
        snapshot = self.get_snapshot(runner)
        self.set_fields(runner, deregistered=str(snapshot.now_ms))

    def finish_deregistration(self, snapshot: RunnerSnapshot) -> None:
        """Record that the runner is being told now: it is no longer listed, and leaves as a worker once it holds
        nothing."""
        if LEFT_FIELD not in snapshot.fields:
            self.set_fields(snapshot.runner, **{LEFT_FIELD: str(snapshot.now_ms)})
        if snapshot.is_registered and not snapshot.held_runs:
            self.lease(snapshot).deregister()

    def list_runners(self) -> list[tuple[WorkerRecord, RunnerRegistration, Mapping[str, str]]]:
        """The registered runners, with their worker records and fields."""
        found = []
        for worker in self.run_queries.workers():
            if worker.partition == 0 and "runner" in worker.identity.about:
                snapshot = self._read_snapshot(worker.id)
                if snapshot is not None and LEFT_FIELD not in snapshot.fields:
                    found.append((worker, snapshot.registration, snapshot.fields))
        return found

    # ---- what is known

    def get_snapshot(self, runner: str) -> RunnerSnapshot:
        """The snapshot of a runner; raises RunnerNotRegistered (401) for a request by the runner itself."""
        found = self._read_snapshot(runner)
        if found is None:
            raise RunnerNotRegistered("Runner not registered")
        return found

    def find_snapshot(self, runner: str) -> RunnerSnapshot:
        """The snapshot of a runner; raises NotFound (404) for a request about the runner."""
        found = self._read_snapshot(runner)
        if found is None:
            raise NotFound("Runner not found")
        return found

    def read_snapshots(self, runners: Sequence[str]) -> list[RunnerSnapshot | None]:
        """The snapshots of several runners, in one round trip."""
        replies = self.store.call_together("dialect/get_runners", ((each, runners) for each in self.store.partitions()))
        return [
            parse_snapshot(runner, of_it, self.home_partition(runner))
            for runner, *of_it in zip(runners, *replies, strict=True)
        ]

    def _read_snapshot(self, runner: str) -> RunnerSnapshot | None:
        return self.read_snapshots([runner])[0]

    def home_partition(self, runner: str) -> int:
        """The partition of a runner's own key."""
        return crc32(runner.encode()) % self.store.keyspace.partitions

    def set_fields(self, runner: str, /, **fields: str) -> None:
        """Set fields of a runner; an empty value deletes the field."""
        self.set_fields_batch([(runner, fields)])

    def set_fields_batch(self, changes: Sequence[tuple[str, Mapping[str, str]]]) -> None:
        """Set fields of several runners, in one round trip."""
        rows: dict[int, list[CommandArgument]] = {}
        for runner, fields in changes:
            for fact in fields.items():
                rows.setdefault(self.home_partition(runner), []).extend((runner, *fact))
        # The script has no refusals.
        self.store.call_together(
            "dialect/set_fields", ((home, ("runner", DIALECT_RUNNER_MS, *words)) for home, words in rows.items())
        )

    # ---- acting for it

    def cached_identity(self, runner: str) -> WorkerIdentity | None:
        """The worker identity of a runner, if it is cached."""
        cached = self._cache.get(runner)
        return cached.lease.identity if cached is not None else None

    def get_identity(self, snapshot: RunnerSnapshot) -> WorkerIdentity:
        """The worker identity of a runner."""
        return self._get_cached(snapshot).lease.identity

    def lease(self, snapshot: RunnerSnapshot) -> WorkerLease:
        """The lease of a runner. A lost lease is registered again, because a runner that polls is never refused."""
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
            # Another server registered it first; that registration is used.
            snapshot = self.get_snapshot(runner)
            if not snapshot.is_registered:
                raise
            lease.go_on(snapshot.epochs)

    def needs_renewal(self, snapshot: RunnerSnapshot) -> bool:
        """Whether a quarter of the lease has passed, so that any sign of life renews it."""
        return snapshot.lease_until_ms - snapshot.now_ms < self._settings.lease_ms * 3 // 4

    def renew_lease(self, snapshot: RunnerSnapshot) -> None:
        """Renew the lease of a runner and of all runs that it holds."""
        if LEFT_FIELD in snapshot.fields:
            return  # its runs go to other runners when the lease has expired
        lease = self.lease(snapshot)
        held = [hold.claim for hold in snapshot.held_runs]
        try:
            reply = lease.heartbeat(held)
        except Evicted:
            self._register_again(lease, snapshot.runner)
            return
        if any(order.order == "hurry" for order in reply.orders):
            for claim in held:
                with suppress(Refused, NotFound):  # the runner no longer holds it
                    self.run_verbs.release(claim, "its runner is to leave")
        if reply.orders:
            # Acknowledged: stop orders are read from the runs themselves with each poll.
            lease.heartbeat(held, reply.orders)

    def find_claim(self, runner: str, run: str) -> Claim | None:
        """The current attempt of a run, if this runner holds it."""
        cached = self.cached_claim(runner, run)
        if cached is not None:
            return cached
        fields = self.store.connection.command("HGET", self.store.key(partition_of(run), "worker_runs", runner), run)
        return Claim(run, str(fields).split(" ")[0], "", "") if fields else None

    def cached_claim(self, runner: str, run: str) -> Claim | None:
        """The cached attempt of a run."""
        found = self.cached_claim_and_session(runner, run)
        return found[0] if found is not None else None

    def cached_claim_and_session(self, runner: str, run: str) -> tuple[Claim, str] | None:
        """The cached attempt of a run, and its session."""
        cached = self._cache.get(runner)
        return cached.claims.get(run) if cached is not None else None

    def claim_batch(self, snapshots: Sequence[RunnerSnapshot]) -> list[list[Claim] | AgentqError]:
        """Claim a run for each of these runners, in the only partition; for each, the claims or the error."""
        leases = [self.lease(snapshot) for snapshot in snapshots]
        before = [lease.lanes(0) for lease in leases]
        replies = self.store.call_together("worker/claim", [(0, lease.claiming(1)) for lease in leases])
        found: list[list[Claim] | AgentqError] = []
        for lease, lanes, reply in zip(leases, before, replies, strict=True):
            try:
                claims = lease.claimed(reply)
                # A lane that is new since the last call is tried at once.
                found.append(claims if claims or lease.lanes(0) == lanes else lease.claim(1))
            except AgentqError as refused:
                found.append(refused)
        return found

    def cache_claim(self, runner: str, claim: Claim, session: str, timeout_ms: int | None = None) -> None:
        """Cache a claim and its timeout for the reports of the runner."""
        cached = self._cache.get(runner)
        if cached is None:
            return
        cached.claims[claim.id] = (claim, session)
        if timeout_ms is not None:
            cached.timeouts_ms[claim.id] = timeout_ms

    def cached_timeouts_ms(self, runner: str) -> Mapping[str, int]:
        """The timeouts of the cached runs of a runner."""
        cached = self._cache.get(runner)
        return dict(cached.timeouts_ms) if cached is not None else {}

    def drop_claim(self, runner: str, run: str) -> str | None:
        """Remove a claim from the cache; returns its session, if it was cached."""
        cached = self._cache.get(runner)
        if cached is None:
            return None
        cached.timeouts_ms.pop(run, None)
        found = cached.claims.pop(run, None)
        return found[1] if found is not None else None
