"""What a worker's runs have to do with others, through a coordinator: children that they look after, and what they may
know of those before them. How the worker asks, and what may be asked.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json, to_json

from agentq.coordinator.errors import AgentqError, Invalid, NotAllowed, Unreachable
from agentq.coordinator.fields import FREE, check_members, one_sentence
from agentq.coordinator.identity import created_ms, new_run_id, partition_of, tick_run_id
from agentq.coordinator.life import Run
from agentq.coordinator.lifecycle import State
from agentq.coordinator.logs import LogEntry
from agentq.coordinator.offspring import Kin, Offspring
from agentq.coordinator.outcomes import Bell
from agentq.coordinator.queue import Claim, Queue
from agentq.coordinator.records import Records
from agentq.coordinator.run import RunSpec
from agentq.coordinator.transport.grants import Grants
from agentq.coordinator.transport.messages import (
    BLOCK_MS_MAX,
    Await,
    Bear,
    End,
    Finished,
    Given,
    Look,
    Mail,
    OfHeld,
    Read,
)
from agentq.coordinator.transport.remote import RemoteStore
from agentq.coordinator.waiting import Message

ATTEMPTS = 5
AGAIN_S = 1.0
"""After how long a wait that could not be asked for is asked for again."""

_messages: TypeAdapter[list[Message]] = TypeAdapter(list[Message])
_entries: TypeAdapter[list[LogEntry]] = TypeAdapter(list[LogEntry])


class RemoteQueue(Queue):
    """The verbs, of which a worker says those about what it holds."""

    store: RemoteStore

    def mail(self, claim: Claim) -> list[Message]:
        return _messages.validate_python(asked_of(self.store, claim, Mail))

    def given(self, claim: Claim, runs: Sequence[str]) -> list[Run]:
        return _runs(asked_of(self.store, claim, Given, runs=list(runs))) if runs else []

    def finished(self, claim: Claim, plan: str, most: int) -> list[Run]:  # noqa: ARG002 - the run's own, in any case
        return _runs(asked_of(self.store, claim, Finished, most=most))


def asked_of(store: RemoteStore, claim: Claim, kind: type[OfHeld], **fields: Any) -> Any:
    """What the coordinator answers to a question about a run that is held; asked again while a connection is made."""
    for attempt in range(1, ATTEMPTS + 1):
        number = store.number()
        asked = kind.model_validate({"id": number, "run": claim.id, "fence": claim.fence, **fields})
        try:
            return store.ask(number, asked.to_wire())
        except Unreachable:
            if attempt == ATTEMPTS:
                raise
            time.sleep(random.uniform(0, AGAIN_S))
    raise AssertionError("the last attempt returns or raises")


def _runs(told: list[Any]) -> list[Run]:
    return [Run.model_validate_json(to_json(each)) for each in told]


class RemoteOffspring(Offspring):
    """Those of one attempt's run."""

    def __init__(self, store: RemoteStore, claim: Claim) -> None:
        self._store = store
        self._claim = claim

    def submit(self, spec: RunSpec, *, most: int, run_id: str | None = None) -> str:
        child = run_id or new_run_id(partition_of(self._claim.id))
        fields = spec.model_dump(mode="json", exclude_unset=True, by_alias=True)
        return str(self._ask(Bear, child=child, spec=fields, most=most))

    def cancel(self, child: str, reason: str) -> State:
        return State(self._ask(End, child=child, reason=reason))

    def get(self, run_id: str) -> Run:
        return Run.model_validate_json(to_json(self._ask(Look, child=run_id)))

    def written(self, child: str, after: str, characters: int) -> tuple[list[LogEntry], bool]:
        entries, more = self._ask(Read, child=child, after=after, characters=characters)
        return _entries.validate_python(entries), bool(more)

    def _ask(self, kind: type[OfHeld], **fields: Any) -> Any:
        return asked_of(self._store, self._claim, kind, **fields)


class RemoteKin(Kin):
    """Those of all runs of a worker. Who waits costs no thread: the coordinator's answer rings."""

    def __init__(self, store: RemoteStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._bells: set[tuple[str, Bell]] = set()

    def of(self, claim: Claim) -> Offspring:
        return RemoteOffspring(self._store, claim)

    def enter(self, claim: Claim, run_id: str, bell: Bell) -> None:
        with self._lock:
            self._bells.add((run_id, bell))
        self._wait(claim, run_id, bell)

    def leave(self, run_id: str, bell: Bell) -> None:
        with self._lock:
            self._bells.discard((run_id, bell))

    def close(self) -> None:
        with self._lock:
            self._bells.clear()

    def _wait(self, claim: Claim, run_id: str, bell: Bell) -> None:
        number = self._store.number()
        asked = Await(id=number, run=claim.id, fence=claim.fence, child=run_id, within_ms=BLOCK_MS_MAX)
        future = self._store.begin(number, asked.to_wire())
        future.add_done_callback(lambda done: self._heard(claim, run_id, bell, done))

    def _heard(self, claim: Claim, run_id: str, bell: Bell, done: Future[Any]) -> None:
        """In the thread of the connection."""
        bell.set()
        broken = done.cancelled() or done.exception() is not None
        with self._lock:
            waits = (run_id, bell) in self._bells
        if waits and (broken or not done.result()):
            self._store.later(AGAIN_S if broken else 0, lambda: self._wait(claim, run_id, bell))


def answered(queue: Queue, grants: Grants, asked: OfHeld) -> Any:
    """What a worker is told about a run that it holds; of all others but its kin it gets to know nothing."""
    grants.check_holds(asked.run, asked.fence)
    claim = Claim(asked.run, asked.fence, "", "")
    match asked:
        case Mail():
            return _messages.dump_python(queue.mail(claim), mode="json")
        case Given(runs=runs):
            own = Records(queue.store).get(asked.run).spec
            if not {*own.inputs.values(), *own.after}.issuperset(runs):
                raise NotAllowed(f"The run {asked.run} is given nothing of those.")
            return [_told(_of_others(run)) for run in queue.given(claim, runs)]
        case Finished(most=most):
            own = Records(queue.store).get(asked.run).spec
            if own.plan is None or own.context != "plan":
                raise NotAllowed(f"The run {asked.run} is not told of its plan.")
            return [_told(_of_others(run)) for run in queue.finished(claim, own.plan, most)]
    return _of_children(queue, claim, grants, asked)


def _of_children(queue: Queue, claim: Claim, grants: Grants, asked: OfHeld) -> Any:
    kin = Offspring(queue, claim)
    match asked:
        case Bear():
            return kin.submit(_child(asked, grants), most=asked.most, run_id=_id_of_child(asked))
        case Look():
            return _told(kin.get(asked.child))
        case Read():
            entries, more = kin.written(asked.child, asked.after, asked.characters)
            return [entry.model_dump(mode="json") for entry in entries], more
        case End():
            return kin.cancel(asked.child, asked.reason).value
        case Await():
            return kin.get(asked.child).state
    raise AgentqError(f"Nobody has said how {asked.type} is answered.")


def _of_others(run: Run) -> Run:
    """Without what is only for the worker that it was executed by."""
    return run.model_copy(update={"spec": run.spec.model_copy(update={"env": {}, "stdin": None, "notes": {}})})


def _told(run: Run) -> Any:
    return from_json(run.model_dump_json(by_alias=True))


def _id_of_child(asked: Bear) -> str:
    """The same when it is asked for twice; none that the worker chooses, which might be what a schedule is to use."""
    return tick_run_id(partition_of(asked.run), created_ms(asked.child), f"{asked.run} {asked.fence} {asked.child}")


def _child(asked: Bear, grants: Grants) -> RunSpec:
    check_members(asked.spec, FREE)
    try:
        spec = RunSpec.model_validate_json(to_json(asked.spec))
    except ValidationError as error:
        raise Invalid(one_sentence(error)) from error
    grants.check_queue(spec.queue)
    return spec
