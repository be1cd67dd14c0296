"""Decides the answer to a poll: the most urgent of these.

1. The runner was deregistered; or it is drained and has no runs left.
2. Runs or sessions to stop: those that it holds and that are to be cancelled, and those that it was given and lost:
   their processes must end before it gets a new run.
3. Scripts to fetch or to remove.
4. A run that it was given and has not begun. A runner polls again only after it has reported a start, so the answer
   with that run was lost, and is sent again.
5. A new run, if the runner has a free slot.

Each poll reads this from the store; nothing is remembered between polls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pydantic import JsonValue
from pydantic_core import from_json

from agentq.coordinator.bounds import ERROR_CHARACTERS
from agentq.coordinator.errors import AgentqError, NotFound, Refused, TryLater, Unreachable
from agentq.coordinator.model.lifecycle import OutcomeClass, State
from agentq.coordinator.model.spec import Outcome
from agentq.coordinator.runs.queries import RunQueries
from agentq.coordinator.runs.run_record import RunRecord
from agentq.coordinator.runs.verbs import Claim
from agentq.dialects.agent_orchestrator.blueprints.placeholders import collect_values
from agentq.dialects.agent_orchestrator.blueprints.store import BlueprintStore
from agentq.dialects.agent_orchestrator.dialect_table import STOP_RUNS, Dialect
from agentq.dialects.agent_orchestrator.run_translation import (
    BLOCKED,
    RESUME_SESSION,
    DialectNotes,
    derive_session_id,
    get_session_id,
    translate_run,
)
from agentq.dialects.agent_orchestrator.runners.registry import ACTIVE_MS, RunnerNotRegistered, RunnerRegistry
from agentq.dialects.agent_orchestrator.runners.run_reports import RAN_TOO_LONG
from agentq.dialects.agent_orchestrator.runners.snapshot import (
    GIVEN_PREFIX,
    GivenRun,
    HeldRun,
    RunnerSnapshot,
    build_claimed_run,
)
from agentq.dialects.agent_orchestrator.sessions.child_runs import ChildRuns
from agentq.dialects.agent_orchestrator.sessions.store import RUN_FIELD, DialectSessionStore
from agentq.server.http.problems import Denied

STOP_REPEAT_MS = 10_000
"""A stop order that was not confirmed is repeated after this time."""
STOP_REPEATS_MAX = 5
"""How often a runner is ordered to stop a lost run; after that the run counts as stopped."""
STOP_PAUSE_MS = 15_000
"""How long a runner gets no new run after an order to stop a lost run, unless it confirms the stop."""

PollBody = dict[str, Any]


@dataclass(frozen=True, slots=True)
class PollAnswer:
    """An answer to a poll. If the client has disconnected, `claim` is handed back."""

    body: PollBody
    claim: Claim | None = None


@dataclass(frozen=True, slots=True)
class EmptyPollAnswer:
    """No answer yet; `retry_ms` is when one may be due even without an event."""

    retry_ms: int | None = None


PollResult = PollAnswer | EmptyPollAnswer | AgentqError


class PollRequest(NamedTuple):
    """A poll: the runner, how long it will wait, and whether the caller's token may act for a runner with that
    token."""

    runner: str
    poll_ms: int
    owns: Callable[[str], bool]


class PollDecider:
    """Decides the answers to polls."""

    def __init__(
        self,
        runner_registry: RunnerRegistry,
        session_store: DialectSessionStore,
        blueprints: BlueprintStore,
        child_runs: ChildRuns,
    ) -> None:
        self.runner_registry = runner_registry
        self.child_runs = child_runs
        self.session_store = session_store
        self.blueprints = blueprints
        self.run_verbs = runner_registry.run_verbs
        self.run_queries = RunQueries(runner_registry.store)

    def decide(self, snapshot: RunnerSnapshot, poll_ms: int = 0) -> PollAnswer | EmptyPollAnswer:
        """The answer for one runner; `poll_ms` is how long it will wait if there is none."""
        if snapshot.is_deregistered:
            self.runner_registry.finish_deregistration(snapshot)
            return PollAnswer({"deregistered": True})
        if not snapshot.is_registered or self.runner_registry.needs_renewal(snapshot):
            self.runner_registry.renew_lease(snapshot)
            snapshot = self.runner_registry.get_snapshot(snapshot.runner)
        snapshot, left_ms = self._end_overdue(snapshot)
        found = self._choose_answer(snapshot)
        if poll_ms and isinstance(found, EmptyPollAnswer):
            self.runner_registry.set_fields(
                snapshot.runner, **self.runner_registry.poll_fields(snapshot.now_ms + poll_ms)
            )
        if left_ms is not None and isinstance(found, EmptyPollAnswer):
            found = EmptyPollAnswer(left_ms if found.retry_ms is None else min(left_ms, found.retry_ms))
        return found

    def decide_batch(self, requests: Sequence[PollRequest]) -> list[PollResult]:
        """The answers to several polls, in shared round trips; for each, an answer or the error."""
        snapshots = self.runner_registry.read_snapshots([request.runner for request in requests])
        answers: list[PollResult] = []
        plain: dict[int, RunnerSnapshot] = {}
        for index, request in enumerate(requests):
            snapshot = snapshots[index]
            if snapshot is None:
                answers.append(RunnerNotRegistered("Runner not registered"))
            elif not request.owns(snapshot.fields.get("token", "")):
                answers.append(Denied("This token is another runner's."))
            elif self._needs_only_run(snapshot) and all(each.runner != snapshot.runner for each in plain.values()):
                plain[index] = snapshot
                answers.append(EmptyPollAnswer())
            else:
                self.runner_registry.get_identity(snapshot)
                answers.append(self._decide_or_error(snapshot, request.poll_ms))
        for index, answer in zip(plain, self._claim_batch(list(plain.values())), strict=True):
            answers[index] = answer
        quiet = [
            (each.runner, self.runner_registry.poll_fields(each.now_ms + requests[index].poll_ms))
            for index, each in plain.items()
            if isinstance(answers[index], EmptyPollAnswer) and requests[index].poll_ms
        ]
        self.runner_registry.set_fields_batch(quiet)
        return answers

    def _needs_only_run(self, snapshot: RunnerSnapshot) -> bool:
        """Whether a new run is the only possible answer for the runner."""
        knows = (
            not snapshot.dialect.fetches_scripts or snapshot.fields.get("scripts", "0") == snapshot.blueprints_revision
        )
        free = (
            knows
            and snapshot.is_registered
            and not (snapshot.is_deregistered or snapshot.is_draining or snapshot.held_runs or snapshot.given_runs)
        )
        return free and not self.runner_registry.needs_renewal(snapshot) and len(snapshot.epochs) == 1

    def _decide_or_error(self, snapshot: RunnerSnapshot, poll_ms: int) -> PollResult:
        try:
            return self.decide(snapshot, poll_ms)
        except AgentqError as refused:
            return refused

    def _claim_batch(self, snapshots: Sequence[RunnerSnapshot]) -> list[PollResult]:
        answers: list[PollResult] = []
        fields: list[tuple[str, dict[str, str]]] = []
        claimed = self.runner_registry.claim_batch(snapshots)
        for index, snapshot in enumerate(snapshots):
            claims = claimed[index]
            if isinstance(claims, AgentqError) or not claims:
                answers.append(claims if isinstance(claims, AgentqError) else EmptyPollAnswer())
                continue
            run = build_claimed_run(claims[0], snapshot)
            if DialectNotes.from_spec(run.spec).hook is not None or run.spec.session is None:
                answer = self._hand_out(snapshot, claims[0])
                answers.append(EmptyPollAnswer(0) if answer is None else PollAnswer(answer.body, claims[0]))
                continue
            body, runner_fields = self._prepare_run(snapshot, claims[0], run, None)
            fields.append((snapshot.runner, runner_fields))
            answers.append(PollAnswer({"run": body}, claims[0]))
        self.runner_registry.set_fields_batch(fields)
        return answers

    def _choose_answer(self, snapshot: RunnerSnapshot) -> PollAnswer | EmptyPollAnswer:
        lost = self._find_lost_runs(snapshot)
        answer = self._order_stops(snapshot, lost) or self._order_script_sync(snapshot)
        if answer is not None:
            return answer
        undelivered = next(
            (hold for hold in snapshot.held_runs if hold.state == State.CLAIMED and not hold.stopping), None
        )
        answer = self._hand_out(snapshot, undelivered.claim) if undelivered is not None else None
        if answer is not None:
            return answer
        if snapshot.is_draining:
            return EmptyPollAnswer() if snapshot.held_runs or lost else PollAnswer({"deregistered": True})
        wait_ms = max((each.stop_ordered_at_ms + STOP_PAUSE_MS - snapshot.now_ms for each in lost), default=0)
        return EmptyPollAnswer(wait_ms) if wait_ms > 0 else self._claim_run(snapshot)

    # ---- stopping

    def _end_overdue(self, snapshot: RunnerSnapshot) -> tuple[RunnerSnapshot, int | None]:
        """End runs that have exceeded their timeout; returns the new snapshot, and when the next run will exceed its
        own."""
        timeouts = self.runner_registry.cached_timeouts_ms(snapshot.runner)
        timed = [hold for hold in snapshot.held_runs if hold.state == State.RUNNING and hold.claim.id in timeouts]
        left = [self._left_ms(hold, timeouts[hold.claim.id], snapshot.now_ms) for hold in timed if not hold.stopping]
        if any(left_ms <= 0 for left_ms in left):
            snapshot = self.runner_registry.get_snapshot(snapshot.runner)
        return snapshot, min((left_ms for left_ms in left if left_ms > 0), default=None)

    def _left_ms(self, hold: HeldRun, timeout_ms: int, now_ms: int) -> int:
        """The time that a run has left; a run without is ended."""
        left_ms = hold.claimed_at_ms + timeout_ms - now_ms
        if left_ms > 0:
            return left_ms
        left_ms += (self.run_queries.get(hold.claim.id).started_at_ms or now_ms) - hold.claimed_at_ms
        if left_ms <= 0:
            self._fail_if_held(hold.claim, RAN_TOO_LONG)
        return left_ms

    def _find_lost_runs(self, snapshot: RunnerSnapshot) -> list[GivenRun]:
        """The runs that the runner was given and lost. Runs that were stopped before they began end here."""
        held = []
        for hold in snapshot.held_runs:
            if hold.stopping and hold.state == State.CLAIMED:
                self._fail_if_held(hold.claim, Outcome(class_=OutcomeClass.CANCELLED, error="stopped before it began"))
            else:
                held.append(hold)
        runs, sessions = {hold.claim.id for hold in held}, {hold.session for hold in held}
        lost = [each for each in snapshot.given_runs if each.run not in runs]
        # A later turn of the same session runs there; a stop by session would hit that one.
        by_session = STOP_RUNS not in snapshot.dialect.stops
        given_up = [
            each for each in lost if each.stops_ordered >= STOP_REPEATS_MAX or (by_session and each.session in sessions)
        ]
        if given_up:
            self.runner_registry.set_fields(snapshot.runner, **{f"{GIVEN_PREFIX}{each.run}": "" for each in given_up})
        return [each for each in lost if each not in given_up]

    def _fail_if_held(self, claim: Claim, outcome: Outcome) -> None:
        try:
            self.run_verbs.fail(claim, outcome)
        except (Refused, NotFound):
            return  # the run has continued without this attempt

    def _order_stops(self, snapshot: RunnerSnapshot, lost: list[GivenRun]) -> PollAnswer | None:
        given_by_run = {each.run: each for each in snapshot.given_runs}
        stops = list(lost)
        for hold in snapshot.held_runs:
            if hold.stopping and hold.state != State.CLAIMED:
                known = given_by_run.get(hold.claim.id)
                session = hold.session or derive_session_id(hold.claim.id)
                stops.append(known or GivenRun(hold.claim.id, session, 0, 0))
        due = [
            each
            for each in stops
            if each.stop_ordered_at_ms == 0 or snapshot.now_ms - each.stop_ordered_at_ms >= STOP_REPEAT_MS
        ]
        if not due:
            return None
        fields = {
            f"{GIVEN_PREFIX}{each.run}": f"{each.session} {snapshot.now_ms} {each.stops_ordered + 1}" for each in due
        }
        self.runner_registry.set_fields(snapshot.runner, **fields)
        return PollAnswer(_build_stop_body(snapshot.dialect, due))

    def _order_script_sync(self, snapshot: RunnerSnapshot) -> PollAnswer | None:
        """The scripts that have changed since the runner was last told, if its dialect has scripts."""
        if not snapshot.dialect.fetches_scripts:
            return None
        if snapshot.fields.get("scripts", "0") == snapshot.blueprints_revision:
            return None
        stamps = {each["name"]: each["modified_at"] for each in self.blueprints.list_kind("scripts")}
        before = dict(_parse_script_stamp(each) for each in snapshot.fields.get("script_names", "").split())
        kept = " ".join(f"{name}|{stamp}" for name, stamp in stamps.items())
        self.runner_registry.set_fields(snapshot.runner, scripts=snapshot.blueprints_revision, script_names=kept)
        changed = [name for name, stamp in stamps.items() if before.get(name) != stamp]
        removed = [name for name in before if name not in stamps]
        return PollAnswer({"sync_scripts": changed, "remove_scripts": removed}) if changed or removed else None

    # ---- giving

    def _claim_run(self, snapshot: RunnerSnapshot) -> PollAnswer | EmptyPollAnswer:
        room = snapshot.registration.concurrency - len(snapshot.held_runs)
        if room <= 0:
            room += self.child_runs.count_waiting_parents(hold.session for hold in snapshot.held_runs)
        while room > 0:
            claims = self.runner_registry.lease(snapshot).claim(1)
            if not claims:
                return EmptyPollAnswer()
            answer = self._hand_out(snapshot, claims[0])
            if answer is not None:
                return PollAnswer(answer.body, claims[0])
        return EmptyPollAnswer()

    def _hand_out(self, snapshot: RunnerSnapshot, claim: Claim) -> PollAnswer | None:
        """The answer that gives a run to its runner; None if its start hook blocks it."""
        run = self.run_queries.get(claim.id)
        notes, parameters = DialectNotes.from_spec(run.spec), None
        # Only a run that this run depends on is its hook; a client may write any id into the notes.
        if notes.hook is not None and notes.hook in run.spec.after:
            blocked, parameters = self._read_hook_answer(notes.hook)
            if blocked is not None:
                self._fail_if_held(claim, Outcome(class_=OutcomeClass.REJECTED, error=blocked[:ERROR_CHARACTERS]))
                return None
        body, fields = self._prepare_run(snapshot, claim, run, parameters)
        self.runner_registry.set_fields(snapshot.runner, **fields)
        if run.spec.session is None:
            self.session_store.set_fields(get_session_id(run), **{RUN_FIELD: run.id})
        return PollAnswer({"run": body})

    def _prepare_run(
        self, snapshot: RunnerSnapshot, claim: Claim, run: RunRecord, parameters: dict[str, JsonValue] | None
    ) -> tuple[PollBody, dict[str, str]]:
        """The body of a run for its runner, and the fields to set for the runner."""
        session, active = get_session_id(run), self.runner_registry.poll_fields(snapshot.now_ms + ACTIVE_MS)
        self.runner_registry.cache_claim(snapshot.runner, claim, session, run.spec.timeout_ms)
        fields = {**active, f"{GIVEN_PREFIX}{run.id}": f"{session} 0 0"}
        return self._build_run_body(run, DialectNotes.from_spec(run.spec), session, parameters), fields

    def _build_run_body(
        self, run: RunRecord, notes: DialectNotes, session: str, parameters: dict[str, JsonValue] | None
    ) -> PollBody:
        body = translate_run(run)
        if parameters is not None:
            body |= {"parameters": parameters, "prompt": parameters.get("prompt", body["prompt"])}
        if notes.type == RESUME_SESSION:
            # Only a session that has begun can have an id from its executor.
            body["session_id"] = self.session_store.read_fields(session).get("given_id") or session
        body["scope"] = notes.scope or None
        body["resolved_agent_blueprint"] = self._resolve_blueprint(notes, body, session)
        return body

    def _resolve_blueprint(self, notes: DialectNotes, body: PollBody, session: str) -> PollBody | None:
        if notes.agent is None:
            return None
        return self.blueprints.fill(
            notes.agent, collect_values(body["parameters"], notes.scope, session, body["run_id"])
        )

    def _read_hook_answer(self, hook: str) -> tuple[str | None, dict[str, JsonValue] | None]:
        """The answer of a start hook: why the run is blocked, or the parameters that it replaces."""
        try:
            run = self.run_queries.get(hook)
        except NotFound:
            return None, None
        result: JsonValue = run.outcome.result if run.outcome is not None and run.state is State.COMPLETED else None
        answer = parse_hook_answer(result)
        if answer.get("action") == "block":
            return f"{BLOCKED}{answer.get('block_reason') or 'No reason provided'}", None
        parameters = answer.get("parameters")
        return None, parameters if isinstance(parameters, dict) else None

    def hand_back(self, runner: str, claim: Claim) -> None:
        """Release a run that could not be delivered; it costs no attempt."""
        self.runner_registry.drop_claim(runner, claim.id)
        self.runner_registry.set_fields(runner, **{f"{GIVEN_PREFIX}{claim.id}": ""})
        try:
            self.run_verbs.release(claim, "its runner had gone before it was delivered")
        except (Unreachable, TryLater):
            raise
        except AgentqError:
            return  # the run has continued without this attempt


def _parse_script_stamp(text: str) -> tuple[str, str]:
    """The name of a script that a runner was told to fetch, and its age at that time."""
    name, _, stamp = text.partition("|")
    return name, stamp


def parse_hook_answer(result: JsonValue) -> dict[str, JsonValue]:
    """A hook's answer as an object, or parsed from JSON; empty if it is neither."""
    if isinstance(result, str):
        try:
            result = from_json(result)
        except ValueError:  # also if it is nested too deeply
            return {}
    return result if isinstance(result, dict) else {}


def _build_stop_body(dialect: Dialect, due: list[GivenRun]) -> PollBody:
    """A stop order in all formats of the dialect."""
    named = {"run": [each.run for each in due], "session": list(dict.fromkeys(each.session for each in due))}
    return {stop.key: named[stop.names] for stop in dialect.stops}
