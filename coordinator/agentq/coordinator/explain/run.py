"""Explains the state of a run in sentences: what it waits for, which worker holds it, what has to happen. Read-only.

Each state has a method of its own. It reads one record after the other while runs change, so the sentences are no
consistent snapshot: each was true when its record was read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from agentq.coordinator.config.settings import Settings
from agentq.coordinator.errors import NotFound
from agentq.coordinator.explain.agent import (
    describe_limit,
    explain_blocked_accounts,
    explain_session_turns,
    explain_stranded_conversation,
)
from agentq.coordinator.explain.plan import explain_merge_turn, explain_plan_task, explain_skip, format_task
from agentq.coordinator.model.durations import format_duration, format_iso
from agentq.coordinator.model.field_types import ENTRY_ID_PATTERN
from agentq.coordinator.model.ids import id_created_ms, partition_of
from agentq.coordinator.model.lifecycle import (
    CLASS_BUDGETS,
    HELD_STATES,
    TERMINAL_STATES,
    OutcomeClass,
    RetryBudget,
    State,
)
from agentq.coordinator.model.retry_policy import RetryPolicy
from agentq.coordinator.model.spec import parse_lane
from agentq.coordinator.queues.limits import Limits
from agentq.coordinator.queues.queues import ALL_QUEUES, Queues
from agentq.coordinator.queues.stats import QueuePause
from agentq.coordinator.runs.queries import RunQueries, WorkerRecord
from agentq.coordinator.runs.run_record import AttemptRecord, RunRecord
from agentq.coordinator.storage.store import NamespaceStore
from agentq.coordinator.workers.placement import can_take, find_placement_problem

DEPENDENCIES_NAMED = 5
"""Dependencies, holders and workers listed by id; the rest is a number."""
RUNS_COUNTED = 1000
"""Runs ahead that are counted; more are "at least"."""
URGENT_LANES_MAX = 50
"""Lanes of higher priority whose runs are counted."""


class RunExplanation:
    """Sentences about one run."""

    def __init__(self, store: NamespaceStore, settings: Settings) -> None:
        self.store = store
        self.settings = settings
        self.records = RunQueries(store)
        self.queues = Queues(store)
        self.limits = Limits(store)

    def of(self, run_id: str) -> tuple[RunRecord, list[str]]:
        """The run, and sentences that explain its state; the most important first."""
        run = self.records.get(run_id)
        now_ms = self.store.time_ms()
        explain_by_state = {
            State.BLOCKED: self._blocked,
            State.SCHEDULED: self._scheduled,
            State.PENDING: self._pending,
            State.CLAIMED: self._held,
            State.RUNNING: self._held,
            State.WAITING: self._waiting,
        }
        sentences = list(explain_by_state.get(run.state, self._ended)(run, now_ms))
        history = () if run.state in TERMINAL_STATES else _explain_last_attempt(run)
        return run, [*sentences, *history, *explain_plan_task(self.store, run), *_explain_schedule(run)]

    def _blocked(self, run: RunRecord, now_ms: int) -> Iterator[str]:
        if run.reason.startswith("follows "):
            other = run.reason.removeprefix("follows ")
            yield f"It starts when {other} ({self._state(other)}) has ended, which has the same dedupe key."
            yield from self._patience(run, now_ms)
            return
        if run.reason.startswith("limit "):
            yield from self._limited(run, run.reason.removeprefix("limit "), now_ms)
        elif run.reason not in ("", "dependency", "turn"):
            yield f"It is blocked: {run.reason}."
        needs = self.records.needs(run.id)
        if needs:
            named = ", ".join(f"{need} ({self._state(need)})" for need in needs[:DEPENDENCIES_NAMED])
            rest = f" and {len(needs) - DEPENDENCIES_NAMED} more" if len(needs) > DEPENDENCIES_NAMED else ""
            yield f"It waits for {named}{rest} to end."
            yield {
                "skip": "If one of them does not complete, it is skipped.",
                "run": "It runs whether they complete or not.",
                "fail": "If one of them does not complete, it fails.",
            }[run.spec.on_failed]
            yield f"`agentq why {needs[0]}` explains that run."
        elif run.reason == "dependency":
            yield "All its dependencies have ended; it will be unblocked in a moment."
        yield from explain_session_turns(self.records, run)
        yield from self._patience(run, now_ms)

    def _limited(self, run: RunRecord, key: str, now_ms: int) -> Iterator[str]:
        """The capacity of a limit, its holders, and the number of runs before this one."""
        partition = partition_of(run.id)
        (limit,) = self.limits.named([key])
        if limit.shut_until_ms is not None and limit.shut_until_ms > now_ms:
            why = f", because: {limit.shut_why}" if limit.shut_why else ""
            left = format_duration(limit.shut_until_ms - now_ms)
            yield f"The limit {key} is shut until {format_iso(limit.shut_until_ms)}, for {left}{why}."
        elif limit.max is not None and limit.held >= limit.max:
            holders = self.limits.partition_holders(partition, key, DEPENDENCIES_NAMED)
            more = f" and {limit.held - len(holders)} more" if limit.held > len(holders) else ""
            by_runs = f", by {', '.join(holders)}{more}" if holders else ""
            yield f"The limit {key} is full: {limit.held} of {limit.max} {_held_phrase(limit.held)}{by_runs}."
        elif limit.rate is not None:
            wanted = run.spec.limits.get(key, 1)
            rate = f"{limit.rate.units} in {format_duration(limit.rate.per_ms)}"
            at_ms = self.store.connection.command("ZSCORE", self.store.key(partition, "timers"), f"limit {key}")
            later = at_ms is not None and float(at_ms) > now_ms
            when = f"; the next run is admitted at {format_iso(int(float(at_ms)))}" if later else ""
            yield f"The limit {key} allows {rate}, and this run needs {wanted}{when}."
        else:
            yield f"The limit {key} has capacity again; the run will be unblocked in a moment."
        place = self.limits.place(partition, key, run.id)
        if place is not None:
            yield "It is the next in line." if place == 0 else f"{_runs_are(place)} before it in line."

    def _scheduled(self, run: RunRecord, now_ms: int) -> Iterator[str]:
        due_at_ms = run.due_at_ms or now_ms
        because = {"delay": "as set at submit", "": ""}.get(run.reason, f"because: {run.reason}")
        last = _last_attempt(run)
        if run.reason != "delay" and last is not None and last.verb in ("fail", "lose", "defer"):
            because = f"after attempt {last.attempt}, which {_describe_ending(last)}"
        because = f", {because}" if because else ""
        if due_at_ms > now_ms:
            yield f"It is due at {format_iso(due_at_ms)}, in {format_duration(due_at_ms - now_ms)}{because}."
        else:
            yield f"It was due at {format_iso(due_at_ms)}, {format_duration(now_ms - due_at_ms)} ago{because}."
            if due_at_ms < now_ms - 2 * self.settings.tick_ms:
                yield "No process makes due runs pending. Every worker does: start one with `agentq worker`."
        yield from self._patience(run, now_ms)

    def _pending(self, run: RunRecord, now_ms: int) -> Iterator[str]:
        queue, lane = run.spec.queue, run.spec.lane
        paused = self.queues.paused()
        for name in (queue, ALL_QUEUES):
            if name in paused:
                yield from _explain_pause(name, paused[name], now_ms)
        workers = self._workers(run)
        problem = find_placement_problem(workers, queue, run.spec.demands, lane)
        able = [worker for worker in workers if can_take(worker, lane)]
        alive = [worker for worker in able if worker.lease_until_ms > now_ms]
        ready = [worker for worker in alive if worker.state == "ready"]
        stranded = list(explain_stranded_conversation(run, workers, now_ms))
        if stranded:
            yield from stranded
        elif problem is not None:
            shut = list(explain_blocked_accounts(self.limits, run, workers, now_ms))
            if problem.shut_agent and not shut:
                yield f"An account of {problem.shut_agent} was opened; its workers check every few seconds."
            else:
                yield from (problem.because, *shut, problem.remedy)
        elif not alive:
            yield (
                f"No heartbeat comes from its {_format_count(len(able), 'worker')}: "
                f"{', '.join(each.id for each in able[:DEPENDENCIES_NAMED])}."
            )
        elif not ready:
            yield f"Its {_format_count(len(alive), 'worker')} can take no new runs, because of a drain."
        else:
            slots = sum(worker.identity.slots for worker in ready)
            taken = sum(len(worker.runs) for worker in ready)
            state = "all taken" if taken >= slots else f"{slots - taken} free"
            yield f"{_format_count(len(ready), 'worker')} can take it, with {_format_count(slots, 'slot')}, {state}."
        yield from self._ahead(run)
        yield from self._patience(run, now_ms)

    def _ahead(self, run: RunRecord) -> Iterator[str]:
        partition = partition_of(run.id)
        if run.spec.fair_key is not None and self._in_fair_queue(run):
            fair_queue = self.store.key(partition, "fair_queue", run.spec.lane)
            place = self.store.connection.command("ZRANK", fair_queue, run.id) or 0
            yield f"Fair keys take turns in its queue; {_runs_are(place)} before it."
            return
        entry = self.store.connection.command("HGET", self.store.key(partition, "run", run.id), "entry")
        first = f"({self._last_read(partition, run.spec.lane)}"
        lane = self.store.key(partition, "lane", run.spec.lane)
        ahead = (
            len(self.store.connection.command("XRANGE", lane, first, f"({entry}", "COUNT", RUNS_COUNTED))
            if re.fullmatch(ENTRY_ID_PATTERN, entry or "")
            else 0
        )
        more = "At least " if ahead == RUNS_COUNTED else ""
        yield f"{more}{_runs_are(ahead)} ahead of it in its lane." if ahead else "It is the next of its lane."
        urgent = self._urgent(run)
        if urgent:
            yield f"{_runs_are(urgent)} in lanes of its queue with a higher priority."

    def _in_fair_queue(self, run: RunRecord) -> bool:
        fair_queue = self.store.key(partition_of(run.id), "fair_queue", run.spec.lane)
        return self.store.connection.command("ZSCORE", fair_queue, run.id) is not None

    def _urgent(self, run: RunRecord) -> int:
        """Runs that wait in lanes of the queue with a higher priority."""
        partition, command = partition_of(run.id), self.store.connection.command
        urgent = [
            lane
            for lane in command("ZRANGE", self.store.key(partition, "lanes"), 0, -1)
            if parse_lane(lane)["queue"] == run.spec.queue and parse_lane(lane)["priority"] > run.spec.priority
        ]
        keys = [
            (self.store.key(partition, "lane", lane), self._last_read(partition, lane))
            for lane in urgent[:URGENT_LANES_MAX]
        ]
        return sum(len(command("XRANGE", key, f"({last}", "+", "COUNT", RUNS_COUNTED)) for key, last in keys)

    def _last_read(self, partition: int, lane: str) -> str:
        """The last entry of a lane that was delivered to a worker."""
        key = self.store.key(partition, "lane", lane)
        if not self.store.connection.command("EXISTS", key):
            return "0-0"
        groups = self.store.connection.command("XINFO", "GROUPS", key)
        fields = dict(zip(groups[0][::2], groups[0][1::2], strict=True)) if groups else {}
        return str(fields.get("last-delivered-id", "0-0"))

    def _held(self, run: RunRecord, now_ms: int) -> Iterator[str]:
        since_ms = (run.started_at_ms if run.state is State.RUNNING else run.claimed_at_ms) or now_ms
        worker = next((worker for worker in self._workers(run) if worker.id == run.worker), None)
        silence = worker.silence(now_ms, self.settings.reap_grace_ms) if worker is not None else ""
        if silence:
            yield f"Its worker {run.worker} {silence}; the run is then requeued."
        if run.state is State.RUNNING and (silence or worker is None):
            yield f"It was started there at {format_iso(since_ms)}, {format_duration(now_ms - since_ms)} ago."
        elif run.state is State.RUNNING:
            yield f"It has run on {run.worker} since {format_iso(since_ms)}, for {format_duration(now_ms - since_ms)}."
        else:
            when = f"{format_iso(since_ms)}, {format_duration(now_ms - since_ms)} ago"
            yield f"The worker {run.worker} claimed it at {when}, and has not started it."
        yield from explain_merge_turn(self.store, run)
        if run.spec.workspace is not None and isinstance(run.progress, dict) and run.progress.get("note"):
            yield f"At the moment it {run.progress['note']}."
        if run.stop_at_ms is not None:
            left_ms = run.stop_at_ms - now_ms
            end = (
                f"in {format_duration(left_ms)} at the latest" if left_ms > 0 else "with the next round of the promoter"
            )
            yield f"A stop was ordered: it is cancelled when its worker confirms, or {end}."
        if worker is None:
            yield "That worker is no longer registered; the janitor will requeue the run."
        elif worker.state == "draining":
            yield "That worker is draining: it finishes the run, or hands it back."

    def _waiting(self, run: RunRecord, now_ms: int) -> Iterator[str]:
        wait = run.wait
        parked_at_ms = run.parked_at_ms or now_ms
        since = f"since {format_iso(parked_at_ms)}, {format_duration(now_ms - parked_at_ms)} ago"
        about = "" if run.reason == wait.describe() else f" ({run.reason})"
        yield f"It waits for {wait.describe()}{about}, {since}, and holds no slot."
        if wait.approval:
            yield f"`agentq approve {run.id}` gives the approval, `agentq deny {run.id}` refuses it."
        for name in wait.signals:
            yield f"`agentq signal {run.id} {name}` sends the signal {name}."
        if wait.children is not None:
            live, some = self.records.children(run.id, DEPENDENCIES_NAMED)
            named = ", ".join(f"{child} ({self._state(child)})" for child in some)
            rest = f" and {live - len(some)} more" if live > len(some) else ""
            yield (f"{live} of its children {'has' if live == 1 else 'have'} not ended: {named}{rest}.")
        if run.due_at_ms is not None:
            left = f"in {format_duration(run.due_at_ms - now_ms)}" if run.due_at_ms > now_ms else "any moment"
            yield f"It continues at {format_iso(run.due_at_ms)}, {left}, in any case."

    def _ended(self, run: RunRecord, now_ms: int) -> Iterator[str]:
        ended_at_ms = run.finished_at_ms or now_ms
        yield (
            f"It {_state_phrase(run.state)} at {format_iso(ended_at_ms)}, {format_duration(now_ms - ended_at_ms)} ago."
        )
        if run.outcome is not None and run.state is not State.COMPLETED:
            message = f": {run.outcome.error}" if run.outcome.error else ""
            code = "" if not run.outcome.exit_code else f" with code {run.outcome.exit_code}"
            yield f"The reason is {run.outcome.class_.value}{code}{message.rstrip('.')}."
        if run.state is State.FAILED and run.attempt:
            # Retries do not count attempts that parked or were handed back.
            tried = run.attempt - sum(each.verb in ("park", "release") for each in run.attempts)
            yield f"It was tried {_format_count(tried, 'time')}; {_explain_no_retry(run)}."
        skipped = list(explain_skip(self.records, run))
        yield from skipped
        if run.state is not State.COMPLETED and not (skipped and run.spec.task):
            yield f"`agentq retry {run.id}` starts it again."

    def _patience(self, run: RunRecord, now_ms: int) -> Iterator[str]:
        """When it fails if it has not started, where it has such a deadline."""
        if run.spec.expires_ms is not None and run.attempt == 0:
            until_ms = run.submitted_at_ms + run.spec.expires_ms
            left = f"in {format_duration(until_ms - now_ms)}" if until_ms > now_ms else "any moment"
            yield f"If it has not started by {format_iso(until_ms)}, {left}, it fails."

    def _state(self, run_id: str) -> str:
        try:
            run = self.records.get(run_id)
        except NotFound:
            return "forgotten"
        where = f"{run.state} on {run.worker}" if run.state in HELD_STATES else run.state.value
        return where + format_task(run)

    def _workers(self, run: RunRecord) -> list[WorkerRecord]:
        partition = partition_of(run.id)
        return [worker for worker in self.records.workers() if worker.partition == partition]


def _explain_pause(name: str, pause: QueuePause, now_ms: int) -> Iterator[str]:
    subject = "Every queue is" if name == ALL_QUEUES else f"Its queue, {name}, is"
    why = f", because: {pause.why}" if pause.why else ""
    yield f"{subject} paused since {format_iso(pause.at_ms)}, {format_duration(now_ms - pause.at_ms)} ago{why}."
    yield f"`agentq queue resume {'--all' if name == ALL_QUEUES else name}` resumes it."


def _held_phrase(number: int) -> str:
    return "is held" if number == 1 else "are held"


def _explain_last_attempt(run: RunRecord) -> Iterator[str]:
    """How the attempt before the present one ended, if there was one."""
    last = _last_attempt(run)
    if last is not None and run.state is not State.SCHEDULED:
        yield f"Attempt {last.attempt} {_describe_ending(last)}."


def _explain_schedule(run: RunRecord) -> Iterator[str]:
    """The schedule that submitted it, if one did."""
    if run.schedule:
        yield f"The schedule {run.schedule} submitted it, for {format_iso(id_created_ms(run.id))}."


def _last_attempt(run: RunRecord) -> AttemptRecord | None:
    return next((attempt for attempt in reversed(run.attempts) if attempt.ended_at_ms is not None), None)


def _describe_ending(attempt: AttemptRecord) -> str:
    outcome = attempt.outcome
    phrases = {"lose": "was lost", "release": "was handed back", "defer": describe_limit(attempt), "park": "was parked"}
    phrase = phrases.get(attempt.verb or "", "failed" if attempt.verb == "fail" else "ended")
    message = outcome.error if outcome is not None and outcome.error else ""
    if outcome is not None and not message and outcome.exit_code is not None:
        message = f"exit code {outcome.exit_code}"
    return f"{phrase} on {attempt.worker}{f' ({message})' if message else ''}"


def _explain_no_retry(run: RunRecord) -> str:
    """Why a failed run is not retried."""
    policy, class_ = run.spec.policy or RetryPolicy(), run.outcome.class_ if run.outcome else OutcomeClass.INTERNAL
    budget, own = CLASS_BUDGETS.get(class_), policy.classes.get(class_)
    if budget is None or class_ in policy.final:
        return f"a run that ends with {class_} is not tried again"
    what = {"failures": "retries", "crashes": "retries after crashes and lost workers"}.get(budget, "deferrals")
    spent, most = getattr(run, budget), getattr(policy, budget)
    if own is not None and own.retries is not None:
        spent, most, what = run.spent.get(class_, 0), own.retries, f"retries after {class_}"
    elif budget is RetryBudget.FAILURES and policy.only and class_ not in policy.only:
        return f"only {', '.join(policy.only)} would be tried again, as set at submit"
    if spent < most and policy.max_elapsed_ms is not None:
        limit = format_duration(policy.max_elapsed_ms)
        return f"another attempt would have begun more than {limit} after its submit, or its last `agentq retry`"
    return f"{spent} of {most} {what} are spent"


def _state_phrase(state: State) -> str:
    return {State.CANCELLED: "was cancelled", State.SKIPPED: "was skipped"}.get(state, state.value)


def _format_count(number: int, one: str, several: str = "") -> str:
    return f"{number} {one if number == 1 else several or one + 's'}"


def _runs_are(number: int) -> str:
    return f"{_format_count(number, 'run')} {'is' if number == 1 else 'are'}"
