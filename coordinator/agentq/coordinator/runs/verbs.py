"""The verbs of clients on runs; those of the worker that holds a run are in attempt_verbs.py.

Every verb is one script (see `lua/`), except a submit with more dependencies than one call takes. Every verb can be
sent twice: `submit` finds the id it made, a worker's verbs find their fence, `requeue` its operation id, and the rest
lead to the same state again. A refusal is an exception that `errors.refusal` makes of the script's word.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice, repeat
from typing import NamedTuple
from zlib import crc32

from pydantic import JsonValue
from pydantic_core import to_json

from agentq.coordinator import bounds, tracing
from agentq.coordinator.config.settings import Settings
from agentq.coordinator.errors import AgentqError, Invalid, NotFound, refusal_error
from agentq.coordinator.model.ids import check_run_id, new_run_id, partition_of
from agentq.coordinator.model.lifecycle import State
from agentq.coordinator.model.spec import RunSpec
from agentq.coordinator.runs.attempt_verbs import AttemptVerbs
from agentq.coordinator.runs.attempt_verbs import Claim as Claim
from agentq.coordinator.storage.connection import CommandArgument, Connection
from agentq.coordinator.storage.keys import Keyspace
from agentq.coordinator.storage.scripts import ScriptSet
from agentq.coordinator.storage.session_lookup import suggest_session
from agentq.coordinator.storage.store import NamespaceStore


class SubmitReceipt(NamedTuple):
    """The result of a submit: a new run, a live one with the same dedupe key, or a refusal."""

    id: str
    created: bool
    refused: AgentqError | None = None


class RunVerbs(AttemptVerbs):
    """The verbs of one namespace."""

    @classmethod
    def open(cls, settings: Settings, *, client_name: str = "agentq", bootstrap: bool = True) -> RunVerbs:
        """Connect as the settings say."""
        connection = Connection(settings.url, client_name=client_name)
        keyspace, scripts = Keyspace(settings.namespace, settings.partitions), ScriptSet(bounds=settings.bounds())
        return cls(NamespaceStore(connection, keyspace, scripts=scripts, bootstrap=bootstrap))

    # ---- anyone

    def submit(self, spec: RunSpec, *, run_id: str | None = None, durable: bool = False) -> SubmitReceipt:
        """Submit one run. With `durable`, return only when it is on the server's disk."""
        if not tracing.is_enabled():
            return self._submit(spec, run_id, durable=durable)
        with tracing.submit_span(spec.queue, spec.traceparent) as (trace, tell):
            receipt = self._submit(tracing.add_traceparent(spec, trace), run_id, durable=durable)
            tell(receipt.id, 1)
            return receipt

    def _submit(self, spec: RunSpec, run_id: str | None, *, durable: bool) -> SubmitReceipt:
        run_id, partition = self.address(spec, run_id)
        call = self.store.call_durably if durable else self.store.call
        (word,) = call("run/submit", partition, *_submit_row(spec, run_id))
        receipt = parse_receipt(run_id, word)
        if receipt.refused is not None:
            raise self.advised(receipt.refused, spec)
        if receipt.created and len(spec.after) > bounds.DEPENDENCIES_PER_CALL:
            self._depend(run_id, spec)
        return receipt

    def submit_many(
        self, specs: Iterable[RunSpec], *, run_ids: Iterable[str] | None = None, batch: int = bounds.SUBMIT_PER_CALL
    ) -> Iterator[SubmitReceipt]:
        """Submit many runs, `batch` of them in a round trip; returns a receipt for each, in order.

        A refusal concerns one run only, and is told in its receipt. With ids from `new_run_id`, a run may depend on one
        that comes before it.
        """
        if not tracing.is_enabled():
            yield from self._submit_many(specs, run_ids, batch)
            return
        rest = iter(specs)
        first = list(islice(rest, 1))
        with tracing.submit_span(within=first[0].traceparent if first else None) as (trace, tell):
            submitted = 0
            traced = (tracing.add_traceparent(spec, trace) for spec in chain(first, rest))
            for receipt in self._submit_many(traced, run_ids, batch):
                submitted += 1
                yield receipt
            tell("", submitted)

    def _submit_many(
        self, specs: Iterable[RunSpec], run_ids: Iterable[str] | None, batch: int
    ) -> Iterator[SubmitReceipt]:
        under_way: deque[_SubmitBatch] = deque()

        def calls() -> Iterator[tuple[int, Sequence[CommandArgument]]]:
            for made in self._batches(specs, run_ids, batch):
                under_way.append(made)
                for partition, places in made.partitions.items():
                    yield (
                        partition,
                        tuple(chain.from_iterable(_submit_row(made.specs[at], made.ids[at]) for at in places)),
                    )

        for words in self.store.call_many("run/submit", calls()):
            oldest = under_way[0]
            if oldest.add_reply(words):
                under_way.popleft()
                for receipt, spec in zip(oldest.receipts(), oldest.specs, strict=True):
                    if receipt.created and len(spec.after) > bounds.DEPENDENCIES_PER_CALL:
                        self._depend(receipt.id, spec)
                    yield receipt

    def cancel(
        self, run_id: str, reason: str = "cancelled on request", *, stop_ms: int = bounds.STOP_DEADLINE_MS
    ) -> State:
        """End a run. One that is held stays as it is until its worker confirms the stop, `stop_ms` at the longest."""
        return self._move("run/cancel", run_id, reason[: bounds.ERROR_CHARACTERS], stop_ms, "", "")

    def wake(self, run_id: str) -> State:
        """Wake a run: a waiting run continues, and the next park of a running one does not wait."""
        return self._move("run/wake", run_id)

    def signal(
        self, run_id: str, name: str, data: JsonValue = None, *, by: str = "", operation: str | None = None
    ) -> State:
        """Send a signal to a run. It is kept until the run waits for it, and wakes it if it waits now."""
        from agentq.coordinator.runs.wait import APPROVAL_SIGNAL

        if name == APPROVAL_SIGNAL:
            raise Invalid(f"The signal {APPROVAL_SIGNAL!r} is an approval; give it with `agentq approve`.")
        return self._signal(run_id, name, data, by, operation)

    def approve(self, run_id: str, comment: str = "", *, by: str = "", operation: str | None = None) -> State:
        """Give the approval that a run asks for."""
        return self._judge(run_id, "approved", comment, by, operation)

    def deny(self, run_id: str, comment: str = "", *, by: str = "", operation: str | None = None) -> State:
        """Refuse the approval; the run continues with that answer."""
        return self._judge(run_id, "denied", comment, by, operation)

    def _judge(self, run_id: str, verdict: str, comment: str, by: str, operation: str | None) -> State:
        from agentq.coordinator.runs.wait import APPROVAL_SIGNAL

        return self._signal(run_id, APPROVAL_SIGNAL, {"verdict": verdict, "comment": comment}, by, operation)

    def _signal(self, run_id: str, name: str, data: JsonValue, by: str, operation: str | None) -> State:
        from agentq.coordinator.runs.wait import signal_arguments

        return self._move("run/signal", run_id, operation or self.store.nonce(), *signal_arguments(name, data, by))

    def requeue(self, run_id: str, *, operation: str | None = None) -> State:
        """Requeue an ended run, with fresh budgets."""
        return self._move("run/requeue", run_id, operation or self.store.nonce())

    def forget(self, ended: Sequence[tuple[str, State]]) -> list[AgentqError | None]:
        """Delete ended runs early, each only in the state that the caller saw; returns for each whether it was kept."""
        rows = [(run_id, state.value) for run_id, state in ended]
        return self._say_many("run/delete", [run_id for run_id, _ in ended], rows)

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
        together = spec.plan if spec.task is not None else spec.session or spec.plan
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

    def _depend(self, run_id: str, spec: RunSpec) -> None:
        """Add the dependencies that did not fit into the submit; the run stays blocked until the last call."""
        rest = iter(spec.after[bounds.DEPENDENCIES_PER_CALL :])
        chunks = iter(lambda: list(islice(rest, bounds.DEPENDENCIES_PER_CALL)), [])
        chunk = next(chunks)
        while chunk:
            following = next(chunks, [])
            seal = 0 if following else 1
            reply = self.store.call(
                "run/add_dependencies", partition_of(run_id), run_id, seal, spec.expires_ms or 0, *chunk
            )
            refused = refusal_error(reply, f"run {run_id}")
            if refused is not None:
                self.cancel(run_id, str(refused))
                raise refused
            chunk = following

    def address(self, spec: RunSpec, run_id: str | None) -> tuple[str, int]:
        """The id of a new run, generated if None, and its partition."""
        if run_id is None and spec.has_only_lane_options:
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
        if spec.task is not None and spec.session is not None and self._partition_for(spec.session) != partition:
            raise Invalid(
                f"A task lives in the partition of its plan, {partition}, and the session {spec.session} in "
                f"{self._partition_for(spec.session)}; give the session another name."
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
        """A refusal, with the name that was perhaps meant."""
        if not isinstance(refused, NotFound) or spec.session is None or f"session {spec.session}," not in str(refused):
            return refused
        return type(refused)(f"{refused}{suggest_session(self.store, spec.session)}")

    def _batches(self, specs: Iterable[RunSpec], run_ids: Iterable[str] | None, size: int) -> Iterator[_SubmitBatch]:
        ids: Iterator[str | None] = repeat(None) if run_ids is None else iter(run_ids)
        rest = iter(specs)
        while batch := list(islice(rest, size)):
            partitions: dict[int, list[int]] = {}
            made: list[str] = []
            for place, spec in enumerate(batch):
                run_id, partition = self.address(spec, next(ids))
                made.append(run_id)
                partitions.setdefault(partition, []).append(place)
            yield _SubmitBatch(batch, made, partitions)


class _SubmitBatch:
    """Runs that are submitted together, in a call for each of their partitions."""

    def __init__(self, specs: list[RunSpec], ids: list[str], partitions: dict[int, list[int]]) -> None:
        self.specs, self.ids, self.partitions = specs, ids, partitions
        self._waiting = list(partitions.values())
        self._words = [""] * len(specs)

    def add_reply(self, words: list[str]) -> bool:
        """Take the reply of the next call; true when it was the last."""
        for place, word in zip(self._waiting.pop(0), words, strict=True):
            self._words[place] = word
        return not self._waiting

    def receipts(self) -> Iterator[SubmitReceipt]:
        return map(parse_receipt, self.ids, self._words)


def _submit_row(spec: RunSpec, run_id: str) -> tuple[CommandArgument, ...]:
    return run_id, spec.lane, spec.to_wire(), b"" if spec.has_only_lane_options else to_json(spec.to_submit_options())


def parse_receipt(run_id: str, word: str) -> SubmitReceipt:
    """The receipt for a reply of the submit script."""
    if word == "ok":
        return SubmitReceipt(run_id, created=True)
    if word.startswith("exists "):
        return SubmitReceipt(word.removeprefix("exists "), created=False)
    return SubmitReceipt(run_id, created=False, refused=refusal_error(word, f"run {run_id}"))
