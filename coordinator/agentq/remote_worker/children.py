"""Children and inputs of a remote worker's runs: the worker's requests, and the coordinator's answers."""

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
from agentq.coordinator.model.field_types import FREE_JSON_FIELDS, check_members, describe_error
from agentq.coordinator.model.ids import id_created_ms, make_tick_run_id, new_run_id, partition_of
from agentq.coordinator.model.lifecycle import State
from agentq.coordinator.model.spec import RunSpec
from agentq.coordinator.runs.children import AttemptChildren, WorkerChildren
from agentq.coordinator.runs.end_waiter import WakeFlag
from agentq.coordinator.runs.logs import RunLogEntry
from agentq.coordinator.runs.queries import RunQueries
from agentq.coordinator.runs.run_record import RunRecord
from agentq.coordinator.runs.verbs import Claim, RunVerbs
from agentq.coordinator.runs.wait import SignalMessage
from agentq.remote_worker.messages import (
    BLOCK_MS_MAX,
    AwaitChildMessage,
    CancelChildMessage,
    ChildLogMessage,
    FinishedTasksMessage,
    HeldRunMessage,
    InputRunsMessage,
    RunStateMessage,
    SignalsMessage,
    SubmitChildMessage,
)
from agentq.remote_worker.permissions import WorkerPermissions
from agentq.remote_worker.remote_store import RemoteStore

REQUEST_ATTEMPTS = 5
RETRY_DELAY_S = 1.0
"""The delay before a wait that failed is requested again."""

_signals_adapter: TypeAdapter[list[SignalMessage]] = TypeAdapter(list[SignalMessage])
_entries_adapter: TypeAdapter[list[RunLogEntry]] = TypeAdapter(list[RunLogEntry])


class RemoteRunVerbs(RunVerbs):
    """The verbs for runs that the worker holds."""

    store: RemoteStore

    def mail(self, claim: Claim) -> list[SignalMessage]:
        return _signals_adapter.validate_python(request_held_run(self.store, claim, SignalsMessage))

    def given(self, claim: Claim, runs: Sequence[str]) -> list[RunRecord]:
        return _parse_runs(request_held_run(self.store, claim, InputRunsMessage, runs=list(runs))) if runs else []

    def finished(self, claim: Claim, plan: str, most: int) -> list[RunRecord]:  # noqa: ARG002 - the run's own, in any case
        return _parse_runs(request_held_run(self.store, claim, FinishedTasksMessage, most=most))


def request_held_run(store: RemoteStore, claim: Claim, kind: type[HeldRunMessage], **fields: Any) -> Any:
    """Send a request about a run that the worker holds, and return the answer; retried while the connection is
    restored."""
    for attempt in range(1, REQUEST_ATTEMPTS + 1):
        number = store.next_number()
        question = kind.model_validate({"id": number, "run": claim.id, "fence": claim.fence, **fields})
        try:
            return store.ask(number, question.to_wire())
        except Unreachable:
            if attempt == REQUEST_ATTEMPTS:
                raise
            time.sleep(random.uniform(0, RETRY_DELAY_S))
    raise AssertionError("the last attempt returns or raises")


def _parse_runs(records: list[Any]) -> list[RunRecord]:
    return [RunRecord.model_validate_json(to_json(each)) for each in records]


class RemoteAttemptChildren(AttemptChildren):
    """The children of one attempt."""

    def __init__(self, store: RemoteStore, claim: Claim) -> None:
        self._store = store
        self._claim = claim

    def submit(self, spec: RunSpec, *, most: int, run_id: str | None = None) -> str:
        child = run_id or new_run_id(partition_of(self._claim.id))
        fields = spec.model_dump(mode="json", exclude_unset=True, by_alias=True)
        return str(self._ask(SubmitChildMessage, child=child, spec=fields, most=most))

    def cancel(self, child: str, reason: str) -> State:
        return State(self._ask(CancelChildMessage, child=child, reason=reason))

    def get(self, run_id: str) -> RunRecord:
        return RunRecord.model_validate_json(to_json(self._ask(RunStateMessage, child=run_id)))

    def written(self, child: str, after: str, characters: int) -> tuple[list[RunLogEntry], bool]:
        entries, more = self._ask(ChildLogMessage, child=child, after=after, characters=characters)
        return _entries_adapter.validate_python(entries), bool(more)

    def _ask(self, kind: type[HeldRunMessage], **fields: Any) -> Any:
        return request_held_run(self._store, self._claim, kind, **fields)


class RemoteWorkerChildren(WorkerChildren):
    """The children of all runs of a worker. A wait takes no thread: the coordinator's answer sets its flag."""

    def __init__(self, store: RemoteStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._waiting: set[tuple[str, WakeFlag]] = set()

    def of(self, claim: Claim) -> AttemptChildren:
        return RemoteAttemptChildren(self._store, claim)

    def enter(self, claim: Claim, run_id: str, wake_flag: WakeFlag) -> None:
        with self._lock:
            self._waiting.add((run_id, wake_flag))
        self._wait(claim, run_id, wake_flag)

    def leave(self, run_id: str, wake_flag: WakeFlag) -> None:
        with self._lock:
            self._waiting.discard((run_id, wake_flag))

    def close(self) -> None:
        with self._lock:
            self._waiting.clear()

    def _wait(self, claim: Claim, run_id: str, wake_flag: WakeFlag) -> None:
        number = self._store.next_number()
        question = AwaitChildMessage(id=number, run=claim.id, fence=claim.fence, child=run_id, within_ms=BLOCK_MS_MAX)
        future = self._store.begin(number, question.to_wire())
        future.add_done_callback(lambda done: self._handle_answer(claim, run_id, wake_flag, done))

    def _handle_answer(self, claim: Claim, run_id: str, wake_flag: WakeFlag, done: Future[Any]) -> None:
        """Called in the thread of the connection."""
        wake_flag.set()
        broken = done.cancelled() or done.exception() is not None
        with self._lock:
            waits = (run_id, wake_flag) in self._waiting
        if waits and (broken or not done.result()):
            self._store.call_later(RETRY_DELAY_S if broken else 0, lambda: self._wait(claim, run_id, wake_flag))


def answer_request(run_verbs: RunVerbs, permissions: WorkerPermissions, question: HeldRunMessage) -> Any:
    """Answer a worker's request about a run that it holds; other runs are visible only as its children or inputs."""
    permissions.check_holds(question.run, question.fence)
    claim = Claim(question.run, question.fence, "", "")
    match question:
        case SignalsMessage():
            return _signals_adapter.dump_python(run_verbs.mail(claim), mode="json")
        case InputRunsMessage(runs=runs):
            own = RunQueries(run_verbs.store).get(question.run).spec
            if not {*own.inputs.values(), *own.after}.issuperset(runs):
                raise NotAllowed(f"The run {question.run} has no such inputs.")
            return [_dump_run(_redact_run(run)) for run in run_verbs.given(claim, runs)]
        case FinishedTasksMessage(most=most):
            own = RunQueries(run_verbs.store).get(question.run).spec
            if own.plan is None or own.context != "plan":
                raise NotAllowed(f"The run {question.run} has no access to its plan.")
            return [_dump_run(_redact_run(run)) for run in run_verbs.finished(claim, own.plan, most)]
    return _answer_child_request(run_verbs, claim, permissions, question)


def _answer_child_request(
    run_verbs: RunVerbs, claim: Claim, permissions: WorkerPermissions, question: HeldRunMessage
) -> Any:
    children = AttemptChildren(run_verbs, claim)
    match question:
        case SubmitChildMessage():
            return children.submit(
                _parse_child_spec(question, permissions), most=question.most, run_id=_make_child_id(question)
            )
        case RunStateMessage():
            return _dump_run(children.get(question.child))
        case ChildLogMessage():
            entries, more = children.written(question.child, question.after, question.characters)
            return [entry.model_dump(mode="json") for entry in entries], more
        case CancelChildMessage():
            return children.cancel(question.child, question.reason).value
        case AwaitChildMessage():
            return children.get(question.child).state
    raise AgentqError(f"Unhandled request {question.type}.")


def _redact_run(run: RunRecord) -> RunRecord:
    """The run without fields that only its own worker may see."""
    return run.model_copy(update={"spec": run.spec.model_copy(update={"env": {}, "stdin": None, "notes": {}})})


def _dump_run(run: RunRecord) -> Any:
    return from_json(run.model_dump_json(by_alias=True))


def _make_child_id(question: SubmitChildMessage) -> str:
    """The id of a child: the same for a repeated request, and not chosen by the worker, which could take an id that a
    schedule will use."""
    return make_tick_run_id(
        partition_of(question.run), id_created_ms(question.child), f"{question.run} {question.fence} {question.child}"
    )


def _parse_child_spec(question: SubmitChildMessage, permissions: WorkerPermissions) -> RunSpec:
    check_members(question.spec, FREE_JSON_FIELDS)
    try:
        spec = RunSpec.model_validate_json(to_json(question.spec))
    except ValidationError as error:
        raise Invalid(describe_error(error)) from error
    permissions.check_queue(spec.queue)
    return spec
