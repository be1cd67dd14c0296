"""Why a run is where it is, in words: what it waits for, who has it, what would have to happen. Reading only.

Each state has its own questions. The answers are read one after the other while the world goes on, so they are a look,
not a proof; a sentence that the next look contradicts was true a moment ago.
"""

from __future__ import annotations

from collections.abc import Iterator

from agentq.coordinator.errors import NotFound
from agentq.coordinator.identity import created_ms, partition_of
from agentq.coordinator.lease import Identity, serves
from agentq.coordinator.lifecycle import HELD, TERMINAL, State
from agentq.coordinator.moments import iso, spelled
from agentq.coordinator.records import Records, WorkerRecord
from agentq.coordinator.run import Attempt, Run, lane_parts
from agentq.coordinator.settings import Settings
from agentq.coordinator.store import Store

NAMED = 5
"""Dependencies that are named one by one."""
COUNTED = 1000
"""Runs ahead that are counted one by one."""
LANES = 50
"""More urgent lanes that are looked into."""


class Explanation:
    """Sentences about one run."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self.store = store
        self.settings = settings
        self.records = Records(store)

    def of(self, run_id: str) -> tuple[Run, list[str]]:
        """The run, and why it is where it is; the most important sentence first."""
        run = self.records.get(run_id)
        now_ms = self.store.time_ms()
        questions = {
            State.BLOCKED: self._blocked,
            State.SCHEDULED: self._scheduled,
            State.PENDING: self._pending,
            State.CLAIMED: self._held,
            State.RUNNING: self._held,
            State.WAITING: self._waiting,
        }
        sentences = list(questions.get(run.state, self._ended)(run, now_ms))
        return run, [*sentences, *(() if run.state in TERMINAL else _history(run)), *_origin(run)]

    def _blocked(self, run: Run, now_ms: int) -> Iterator[str]:
        if run.reason not in ("", "dependency"):
            yield f"It is blocked: {run.reason}."
        needs = self.records.needs(run.id)
        if needs:
            named = ", ".join(f"{need} ({self._state(need)})" for need in needs[:NAMED])
            rest = f" and {len(needs) - NAMED} more" if len(needs) > NAMED else ""
            yield f"It waits for {named}{rest} to end."
            yield {
                "skip": "If one of them does not complete, it is skipped.",
                "run": "It runs however they end.",
                "fail": "If one of them does not complete, it fails.",
            }[run.spec.on_failed]
            yield f"`agentq why {needs[0]}` tells more."
        elif run.reason == "dependency":
            yield "Everything it waited for has ended; it is about to go on."
        yield from self._patience(run, now_ms)

    def _scheduled(self, run: Run, now_ms: int) -> Iterator[str]:
        due_at_ms = run.due_at_ms or now_ms
        because = {"delay": "as its submit said", "": ""}.get(run.reason, f"because: {run.reason}")
        last = _last(run)
        if run.reason != "delay" and last is not None and last.verb in ("fail", "lose", "defer"):
            because = f"after attempt {last.attempt}, which {_ending(last)}"
        because = f", {because}" if because else ""
        if due_at_ms > now_ms:
            yield f"It is due at {iso(due_at_ms)}, in {spelled(due_at_ms - now_ms)}{because}."
        else:
            yield f"It was due at {iso(due_at_ms)}, {spelled(now_ms - due_at_ms)} ago{because}."
            if due_at_ms < now_ms - 2 * self.settings.tick_ms:
                yield "Nobody makes due runs pending; every worker does, so start one with `agentq worker`."
        yield from self._patience(run, now_ms)

    def _pending(self, run: Run, now_ms: int) -> Iterator[str]:
        queue, lane = run.spec.queue, run.spec.lane
        everyone = [worker for worker in self._workers(run) if queue in worker.identity.queues]
        able = [worker for worker in everyone if _may_take(worker, lane)]
        alive = [worker for worker in able if worker.lease_until_ms > now_ms]
        ready = [worker for worker in alive if worker.state == "ready"]
        if not everyone:
            yield f"No worker is registered for its queue, {queue}; start one with `agentq worker --queue {queue}`."
        elif not able:
            yield from self._unmet(run, everyone)
        elif not alive:
            yield f"Its {_many(len(able), 'worker')} cannot be heard: {', '.join(each.id for each in able[:NAMED])}."
        elif not ready:
            yield f"Its {_many(len(alive), 'worker')} can take no more runs, because they are draining."
        else:
            slots = sum(worker.identity.slots for worker in ready)
            taken = sum(len(worker.runs) for worker in ready)
            verb = "has" if len(ready) == 1 else "have"
            state = "all taken" if taken >= slots else f"{slots - taken} free"
            yield f"{_many(len(ready), 'worker')} may take it, and {verb} {_many(slots, 'slot')}, {state}."
        yield from self._ahead(run)
        yield from self._patience(run, now_ms)

    def _unmet(self, run: Run, everyone: list[WorkerRecord]) -> Iterator[str]:
        """Which demand nobody meets."""
        queue, demands = run.spec.queue, run.spec.demands
        labels = [worker.identity.labels for worker in everyone]
        unmet = [f"{name}={value}" for name, value in demands.items() if all(of.get(name) != value for of in labels)]
        if unmet:
            yield f"It demands {', '.join(unmet)}, and no worker registered for its queue, {queue}, has that label."
            yield f"Start one with `agentq worker --queue {queue} {' '.join(f'--label {each}' for each in unmet)}`."
        else:
            every = ", ".join(f"{name}={value}" for name, value in demands.items())
            yield f"Some worker of its queue, {queue}, meets each of its demands ({every}), but none meets them all."

    def _ahead(self, run: Run) -> Iterator[str]:
        partition = partition_of(run.id)
        entry = self.store.connection.command("HGET", self.store.key(partition, "run", run.id), "entry")
        first = f"({self._last_read(partition, run.spec.lane)}"
        lane = self.store.key(partition, "lane", run.spec.lane)
        ahead = len(self.store.connection.command("XRANGE", lane, first, f"({entry}", "COUNT", COUNTED)) if entry else 0
        more = "at least " if ahead == COUNTED else ""
        yield f"In its lane, {more}{_are(ahead)} ahead of it." if ahead else "It is the next of its lane."
        urgent = self._urgent(run)
        if urgent:
            yield f"{_are(urgent).capitalize()} in more urgent lanes of its queue."

    def _urgent(self, run: Run) -> int:
        """Runs that wait in lanes of the queue with a higher priority."""
        partition, command = partition_of(run.id), self.store.connection.command
        urgent = [
            lane
            for lane in command("ZRANGE", self.store.key(partition, "lanes"), 0, -1)
            if lane_parts(lane)["queue"] == run.spec.queue and lane_parts(lane)["priority"] > run.spec.priority
        ]
        keys = [(self.store.key(partition, "lane", lane), self._last_read(partition, lane)) for lane in urgent[:LANES]]
        return sum(len(command("XRANGE", key, f"({last}", "+", "COUNT", COUNTED)) for key, last in keys)

    def _last_read(self, partition: int, lane: str) -> str:
        """The last entry of a lane that was delivered to a worker."""
        key = self.store.key(partition, "lane", lane)
        if not self.store.connection.command("EXISTS", key):
            return "0-0"
        groups = self.store.connection.command("XINFO", "GROUPS", key)
        fields = dict(zip(groups[0][::2], groups[0][1::2], strict=True)) if groups else {}
        return str(fields.get("last-delivered-id", "0-0"))

    def _held(self, run: Run, now_ms: int) -> Iterator[str]:
        since_ms = (run.started_at_ms if run.state is State.RUNNING else run.claimed_at_ms) or now_ms
        if run.state is State.RUNNING:
            yield f"It runs on {run.worker} since {iso(since_ms)}, for {spelled(now_ms - since_ms)}."
        else:
            when = f"{iso(since_ms)}, {spelled(now_ms - since_ms)} ago"
            yield f"It was given to {run.worker} at {when}; its process has not begun."
        worker = next((worker for worker in self._workers(run) if worker.id == run.worker), None)
        if run.stop_at_ms is not None:
            left_ms = run.stop_at_ms - now_ms
            end = f"in {spelled(left_ms)} at the latest" if left_ms > 0 else "with the next round of the promoter"
            yield f"It is to be cancelled: when its worker confirms the stop, or {end}."
        if worker is None:
            yield "That worker is not registered any more; the janitor will give the run to another."
        elif worker.lease_until_ms <= now_ms:
            silent = spelled(now_ms - worker.lease_until_ms)
            yield f"The lease of that worker ended {silent} ago; a reaper, of any worker or `agentq reap`, will act."
        elif worker.state == "draining":
            yield "That worker is draining: it finishes the run, or hands it back."

    def _waiting(self, run: Run, now_ms: int) -> Iterator[str]:
        yield f"It gave its slot back and waits to be woken{f': {run.reason}' if run.reason else ''}."
        if run.due_at_ms is not None:
            yield f"Its alarm rings at {iso(run.due_at_ms)}, in {spelled(run.due_at_ms - now_ms)}."

    def _ended(self, run: Run, now_ms: int) -> Iterator[str]:
        ended_at_ms = run.finished_at_ms or now_ms
        yield f"It {_verdict(run.state)} at {iso(ended_at_ms)}, {spelled(now_ms - ended_at_ms)} ago."
        if run.outcome is not None and run.state is not State.COMPLETED:
            said = f": {run.outcome.error}" if run.outcome.error else ""
            code = "" if run.outcome.exit_code is None else f" with code {run.outcome.exit_code}"
            yield f"The reason is {run.outcome.class_.value}{code}{said.rstrip('.')}."
        if run.state is State.FAILED and run.attempt:
            policy = run.spec.retry
            spent = f"{run.failures} of {policy.failures if policy else 0} retries are spent"
            crashes = f", and {_many(run.crashes, 'loss', 'losses')} of its worker" if run.crashes else ""
            yield f"It was tried {_many(run.attempt, 'time')}; {spent}{crashes}."
        if run.state is not State.COMPLETED:
            yield f"`agentq retry {run.id}` lets it begin again."

    def _patience(self, run: Run, now_ms: int) -> Iterator[str]:
        """When it will be given up, if it waits too long."""
        if run.spec.expires_ms is not None and run.attempt == 0:
            until_ms = run.submitted_at_ms + run.spec.expires_ms
            left = f"in {spelled(until_ms - now_ms)}" if until_ms > now_ms else "any moment"
            yield f"If it has not begun by {iso(until_ms)}, {left}, it fails."

    def _state(self, run_id: str) -> str:
        try:
            run = self.records.get(run_id)
        except NotFound:
            return "forgotten"
        return f"{run.state} on {run.worker}" if run.state in HELD else run.state.value

    def _workers(self, run: Run) -> list[WorkerRecord]:
        partition = partition_of(run.id)
        return [worker for worker in self.records.workers() if worker.partition == partition]


def _may_take(worker: WorkerRecord, lane: str) -> bool:
    described = worker.identity
    return bool(serves(Identity(id=worker.id, queues=described.queues, labels=described.labels), [lane]))


def _history(run: Run) -> Iterator[str]:
    """What went before, where the present attempt is not the first."""
    last = _last(run)
    if last is not None and run.state is not State.SCHEDULED:
        yield f"Attempt {last.attempt} {_ending(last)}."


def _origin(run: Run) -> Iterator[str]:
    """Who made it, if that was not somebody's submit."""
    if run.schedule:
        yield f"The schedule {run.schedule} made it, for {iso(created_ms(run.id))}."


def _last(run: Run) -> Attempt | None:
    return next((attempt for attempt in reversed(run.attempts) if attempt.ended_at_ms is not None), None)


def _ending(attempt: Attempt) -> str:
    outcome = attempt.outcome
    verb = {"lose": "was lost", "release": "was handed back", "defer": "met a limit", "park": "was parked"}
    word = verb.get(attempt.verb or "", "failed" if attempt.verb == "fail" else "ended")
    said = outcome.error if outcome is not None and outcome.error else ""
    if outcome is not None and not said and outcome.exit_code is not None:
        said = f"exit code {outcome.exit_code}"
    return f"{word} on {attempt.worker}{f' ({said})' if said else ''}"


def _verdict(state: State) -> str:
    return {State.CANCELLED: "was cancelled", State.SKIPPED: "was skipped"}.get(state, state.value)


def _many(number: int, one: str, several: str = "") -> str:
    return f"{number} {one if number == 1 else several or one + 's'}"


def _are(number: int) -> str:
    return f"{_many(number, 'run')} {'is' if number == 1 else 'are'}"
