"""The verbs that anyone may say of a run, and those of the worker that holds one.

Every verb is one script (see `lua/`), except a submit with more dependencies than one call takes. Every verb can be
sent twice: `submit` finds the id it made, a worker's verbs find their fence, `requeue` its operation id, and the rest
lead to the same state again. A refusal is an exception that `errors.refusal` makes of the script's word.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice, repeat
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from pydantic import JsonValue
from pydantic_core import to_json

from agentq.coordinator import limits
from agentq.coordinator.connection import Connection, Word
from agentq.coordinator.errors import AgentqError, Invalid, NotFound, refusal
from agentq.coordinator.identity import check_run_id, new_run_id, partition_of
from agentq.coordinator.keys import Keyspace
from agentq.coordinator.lifecycle import COMPLETING, State
from agentq.coordinator.run import Outcome, RunSpec
from agentq.coordinator.settings import Settings
from agentq.coordinator.store import Store

if TYPE_CHECKING:
    # Models that a submit would make for nothing.
    from agentq.coordinator.logs import Chunk
    from agentq.coordinator.waiting import Resumption, Wait


class Receipt(NamedTuple):
    """What became of a submit: a new run, a live one with the same dedupe key, or a refusal."""

    id: str
    created: bool
    refused: AgentqError | None = None


class Claim(NamedTuple):
    """A run in its worker's hands: what to execute, and the fence that every report must show."""

    id: str
    fence: str
    lane: str
    spec: str


class Queue:
    """The verbs of one namespace."""

    def __init__(self, store: Store) -> None:
        self.store = store

    @classmethod
    def open(cls, settings: Settings, *, client_name: str = "agentq", bootstrap: bool = True) -> Queue:
        """Connect as the settings say."""
        connection = Connection(settings.url, client_name=client_name)
        return cls(Store(connection, Keyspace(settings.namespace, settings.partitions), bootstrap=bootstrap))

    # ---- anyone

    def submit(self, spec: RunSpec, *, run_id: str | None = None, durable: bool = False) -> Receipt:
        """Put one run into the world. With `durable`, return only when it is on the server's disk."""
        run_id, partition = self.address(spec, run_id)
        call = self.store.call_durably if durable else self.store.call
        (word,) = call("submit", partition, *_row(spec, run_id))
        receipt = receipt_of(run_id, word)
        if receipt.refused is not None:
            raise self.advised(receipt.refused, spec)
        if receipt.created and len(spec.after) > limits.DEPENDENCIES_A_CALL:
            self._depend(run_id, spec)
        return receipt

    def submit_many(self, specs: Iterable[RunSpec], *, run_ids: Iterable[str] | None = None) -> Iterator[Receipt]:
        """Put many runs into the world, a thousand in a round trip, and tell of each in order.

        A refusal concerns one run only, and is told in its receipt. With ids from `new_run_id`, a run may depend on one
        that comes before it.
        """
        under_way: deque[_Batch] = deque()

        def calls() -> Iterator[tuple[int, Sequence[Word]]]:
            for batch in self._batches(specs, run_ids):
                under_way.append(batch)
                for partition, places in batch.partitions.items():
                    yield partition, tuple(chain.from_iterable(_row(batch.specs[at], batch.ids[at]) for at in places))

        for words in self.store.call_many("submit", calls()):
            batch = under_way[0]
            if batch.told(words):
                under_way.popleft()
                for receipt, spec in zip(batch.receipts(), batch.specs, strict=True):
                    if receipt.created and len(spec.after) > limits.DEPENDENCIES_A_CALL:
                        self._depend(receipt.id, spec)
                    yield receipt

    def cancel(self, run_id: str, reason: str = "cancelled on request", *, stop_ms: int = limits.STOP_MS) -> State:
        """End a run. One that is held stays as it is until its worker confirms the stop, `stop_ms` at the longest."""
        return self._move("cancel", run_id, reason[: limits.ERROR_CHARACTERS], stop_ms, "", "")

    def wake(self, run_id: str) -> State:
        """Want a run awake: if it sleeps it goes on, if it is about to sleep it does not."""
        return self._move("wake", run_id)

    def signal(
        self, run_id: str, name: str, data: JsonValue = None, *, by: str = "", operation: str | None = None
    ) -> State:
        """Send a run something to know. It is kept until the run has waited for it, and wakes it if it does now."""
        from agentq.coordinator.waiting import APPROVAL

        if name == APPROVAL:
            raise Invalid(f"The signal {APPROVAL!r} is an approval; give it with `agentq approve`.")
        return self._signal(run_id, name, data, by, operation)

    def approve(self, run_id: str, comment: str = "", *, by: str = "", operation: str | None = None) -> State:
        """Say yes to what a run asks for."""
        return self._judge(run_id, "approved", comment, by, operation)

    def deny(self, run_id: str, comment: str = "", *, by: str = "", operation: str | None = None) -> State:
        """Say no to it: the run goes on with that, and decides what it means."""
        return self._judge(run_id, "denied", comment, by, operation)

    def _judge(self, run_id: str, verdict: str, comment: str, by: str, operation: str | None) -> State:
        from agentq.coordinator.waiting import APPROVAL

        return self._signal(run_id, APPROVAL, {"verdict": verdict, "comment": comment}, by, operation)

    def _signal(self, run_id: str, name: str, data: JsonValue, by: str, operation: str | None) -> State:
        from agentq.coordinator.waiting import signal_words

        return self._move("signal", run_id, operation or self.store.nonce(), *signal_words(name, data, by))

    def requeue(self, run_id: str, *, operation: str | None = None) -> State:
        """Let an ended run begin again, with fresh budgets."""
        return self._move("requeue", run_id, operation or self.store.nonce())

    def forget(self, ended: Sequence[tuple[str, State]]) -> list[AgentqError | None]:
        """Delete ended runs before their time, each in the state that it was seen in; tells which were left."""
        rows = [(run_id, state.value) for run_id, state in ended]
        return self._say_many("forget", [run_id for run_id, _ in ended], rows)

    def home(self, spec: RunSpec) -> int | None:
        """The partition that a run must live in; None if any will do.

        What belongs together lives together: a run and its children, a session, a plan, a run and its dependents, the
        users of a key. The first of these decides, so a dedupe key that is used in several plans is told apart by them.
        """
        partitions = self.store.keyspace.partitions
        if partitions == 1:
            return None
        if spec.parent is not None:
            return partition_of(spec.parent)
        together = spec.session or spec.plan
        if together is None and spec.after:
            return partition_of(spec.after[0])
        together = together or spec.dedupe_key
        return None if together is None else self._partition_for(together)

    def _partition_for(self, word: str) -> int:
        return crc32(word.encode()) % self.store.keyspace.partitions

    def _somewhere(self, spec: RunSpec) -> int:
        """A partition for a run that may live in any: with others of its limit, which counts in each by itself."""
        key = next(iter(spec.limits), None)
        return random.randrange(self.store.keyspace.partitions) if key is None else self._partition_for(key)

    # ---- the worker that holds it; see lease.py for how it comes to hold any

    def start(self, claims: Sequence[Claim]) -> list[AgentqError | None]:
        """Say that the processes of these attempts have begun; tells which of them must not."""
        rows = [(claim.id, claim.fence) for claim in claims]
        return self._say_many("start", [claim.id for claim in claims], rows)

    def report(self, claim: Claim, number: int, progress: Mapping[str, object]) -> None:
        """Say how far an attempt has come. The worker numbers its reports; an old number changes nothing."""
        body = to_json(progress)
        if len(body) > limits.PROGRESS_BYTES:
            raise Invalid(f"Progress has {len(body)} bytes; {limits.PROGRESS_BYTES} is the most.")
        self._say("report", claim.id, claim.fence, number, body)

    def log(self, claim: Claim, number: int, chunks: Sequence[Chunk]) -> None:
        """Append to a run's log what an attempt wrote since the last time.

        The worker numbers its calls from 1, each with another number, and keeps the chunks of a call until it was
        answered: one that is sent again with the same number and the same chunks is not doubled.
        """
        if len(chunks) > limits.LOG_CHUNKS_A_CALL:
            raise Invalid(f"A call takes {limits.LOG_CHUNKS_A_CALL} chunks at the most, not {len(chunks)}.")
        longest = max((len(chunk.text) for chunk in chunks), default=0)
        if longest > limits.LOG_CHUNK_CHARACTERS:
            raise Invalid(f"A chunk has {limits.LOG_CHUNK_CHARACTERS} characters at the most, not {longest}.")
        self._say("log", claim.id, claim.fence, number, *chain.from_iterable(chunks))

    def finish(self, finished: Sequence[tuple[Claim, Outcome]]) -> list[AgentqError | None]:
        """Say that the work of these attempts is in; tells which of them were refused."""
        rows = [(claim.id, claim.fence, outcome.to_wire()) for claim, outcome in finished]
        return self._say_many("finish", [claim.id for claim, _ in finished], rows)

    def fail(self, claim: Claim, outcome: Outcome, *, delay_ms: int | None = None) -> State:
        """Say that an attempt did not do its work. Its class and the run's policy decide what comes next."""
        if outcome.class_ in COMPLETING:
            raise Invalid(f"An attempt that failed has another class than '{outcome.class_}'.")
        delay = "" if delay_ms is None else min(max(0, delay_ms), limits.DELAY_MS_MAX)
        dice = self.store.dice()
        return self._move("fail", claim.id, claim.fence, outcome.class_.value, outcome.to_wire(), dice, delay)

    def defer(
        self, claim: Claim, due_at_ms: int | None, outcome: Outcome, *, delay_ms: int | None = None, gate: str = ""
    ) -> State:
        """Put an attempt off until a usage limit has passed; it costs the run no attempt.

        Without a time it goes on after `delay_ms`, and without that as its policy backs off. With a gate, the key that
        the limit is of, nobody else is let in under it before that time either.
        """
        if due_at_ms is not None and delay_ms is not None:
            raise Invalid("An attempt is put off until a time or for a while, not both.")
        due = "" if due_at_ms is None else _a_time(due_at_ms)
        delay = "" if delay_ms is None else min(max(0, delay_ms), limits.DELAY_MS_MAX)
        return self._move("defer", claim.id, claim.fence, due, delay, outcome.to_wire(), gate, self.store.dice())

    def release(self, claim: Claim, reason: str = "released") -> State:
        """Hand a run back, its processes ended; it costs the run nothing."""
        return self._move("release", claim.id, claim.fence, reason)

    def park(
        self,
        claim: Claim,
        reason: str = "",
        wait: Wait | None = None,
        *,
        alarm_at_ms: int | None = None,
    ) -> State:
        """Give a run's slot back until what it waits for is there. What this attempt has received is done with."""
        from agentq.coordinator.waiting import Wait

        wait = wait or Wait()
        if alarm_at_ms is not None:
            wait = wait.model_copy(update={"until_ms": _a_time(alarm_at_ms)})
        return self._move("park", claim.id, claim.fence, *wait.words(reason))

    def receive(self, claim: Claim) -> Resumption | None:
        """What an attempt resumes with; None where its run has never parked. It stays until the attempt parks again."""
        from agentq.coordinator.waiting import receive

        return receive(self.store, claim.id, claim.fence)

    # ---- how they are said

    def _say(self, verb: str, run_id: str, *words: Word) -> str:
        reply = str(self.store.call(verb, partition_of(run_id), run_id, *words))
        refused = refusal(reply, f"run {run_id}")
        if refused is not None:
            raise refused
        return reply

    def _move(self, verb: str, run_id: str, *words: Word) -> State:
        """Say a verb, and learn the state that the run is in now."""
        return State(self._say(verb, run_id, *words).removeprefix("ok "))

    def _say_many(self, verb: str, ids: Sequence[str], rows: Sequence[tuple[Word, ...]]) -> list[AgentqError | None]:
        by_partition: dict[int, list[int]] = {}
        for place, run_id in enumerate(ids):
            by_partition.setdefault(partition_of(run_id), []).append(place)
        results: list[AgentqError | None] = [None] * len(ids)
        for partition, places in by_partition.items():
            words = self.store.call(verb, partition, *chain.from_iterable(map(rows.__getitem__, places)))
            for place, word in zip(places, words, strict=True):
                if word != "ok":
                    results[place] = refusal(word, f"run {ids[place]}")
        return results

    def _depend(self, run_id: str, spec: RunSpec) -> None:
        """Hand in the dependencies that did not fit into the submit; the run stays blocked until the last call."""
        rest = iter(spec.after[limits.DEPENDENCIES_A_CALL :])
        chunks = iter(lambda: list(islice(rest, limits.DEPENDENCIES_A_CALL)), [])
        chunk = next(chunks)
        while chunk:
            following = next(chunks, [])
            seal = 0 if following else 1
            reply = self.store.call("depend", partition_of(run_id), run_id, seal, spec.expires_ms or 0, *chunk)
            refused = refusal(reply, f"run {run_id}")
            if refused is not None:
                self.cancel(run_id, str(refused))
                raise refused
            chunk = following

    def address(self, spec: RunSpec, run_id: str | None) -> tuple[str, int]:
        """The id that a new run gets, unless it has one, and the partition it must or may live in."""
        if run_id is None and spec.passes_the_door:
            partitions = self.store.keyspace.partitions
            partition = random.randrange(partitions) if partitions > 1 else 0
            return new_run_id(partition), partition
        home = self.home(spec)
        if run_id is not None:
            check_run_id(run_id)
            partition = partition_of(run_id)
        else:
            partition = self._somewhere(spec) if home is None else home
        if home is not None and home != partition:
            raise Invalid(
                f"The run {run_id} would live in partition {partition}, and what it belongs to lives in {home}; "
                f"make its id for partition {home}."
            )
        foreign = next((parent for parent in spec.after if partition_of(parent) != partition), None)
        if foreign is not None:
            raise Invalid(
                f"A run can wait only for runs of its own partition, {partition}, and {foreign} lives in another; "
                "submit both with the same plan or session."
            )
        apart = self.home(spec.model_copy(update={"parent": None, "dedupe_key": None})) if spec.parent else None
        if apart not in (None, partition):
            raise Invalid(
                f"A child lives in the partition of its parent, {partition}, and its plan or session lives in {apart}; "
                "submit it without that, or the parent with it."
            )
        return run_id or new_run_id(partition), partition

    def advised(self, refused: AgentqError, spec: RunSpec) -> AgentqError:
        """A refusal, with the name that may have been meant."""
        if not isinstance(refused, NotFound) or spec.session is None or f"session {spec.session}," not in str(refused):
            return refused
        from agentq.coordinator.sessions import suggestion

        return type(refused)(f"{refused}{suggestion(self.store, spec.session)}")

    def _batches(self, specs: Iterable[RunSpec], run_ids: Iterable[str] | None) -> Iterator[_Batch]:
        ids: Iterator[str | None] = repeat(None) if run_ids is None else iter(run_ids)
        rest = iter(specs)
        while batch := list(islice(rest, limits.SUBMIT_A_CALL)):
            partitions: dict[int, list[int]] = {}
            made: list[str] = []
            for place, spec in enumerate(batch):
                run_id, partition = self.address(spec, next(ids))
                made.append(run_id)
                partitions.setdefault(partition, []).append(place)
            yield _Batch(batch, made, partitions)


class _Batch:
    """Runs that are submitted together, in a call for each of their partitions."""

    def __init__(self, specs: list[RunSpec], ids: list[str], partitions: dict[int, list[int]]) -> None:
        self.specs, self.ids, self.partitions = specs, ids, partitions
        self._waiting = list(partitions.values())
        self._words = [""] * len(specs)

    def told(self, words: list[str]) -> bool:
        """Take the reply of the next call; true when it was the last."""
        for place, word in zip(self._waiting.pop(0), words, strict=True):
            self._words[place] = word
        return not self._waiting

    def receipts(self) -> Iterator[Receipt]:
        return map(receipt_of, self.ids, self._words)


def _a_time(at_ms: int) -> int:
    return min(max(0, at_ms), limits.DUE_AT_MS_MAX)


def _row(spec: RunSpec, run_id: str) -> tuple[Word, ...]:
    return run_id, spec.lane, spec.to_wire(), b"" if spec.passes_the_door else to_json(spec.to_door())


def receipt_of(run_id: str, word: str) -> Receipt:
    """What the submit script's answer means."""
    if word == "ok":
        return Receipt(run_id, created=True)
    if word.startswith("exists "):
        return Receipt(word.removeprefix("exists "), created=False)
    return Receipt(run_id, created=False, refused=refusal(word, f"run {run_id}"))
