"""The messages between a worker and the coordinator on a WebSocket: JSON, one message per frame.

The worker starts with its name and the purpose of the connection, and is welcomed with the coordinator's settings. Then
it sends numbered requests, each of which is answered once, in any order. A request is a call of one of the
coordinator's scripts with the script's own arguments, or one of a few others: wait for entries, list delivered entries,
look after children. So both transports carry the same calls, and what makes a call safe to repeat (fence, number or
name) is the same on both.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from agentq.coordinator.bounds import CHILDREN_PER_RUN, CLAIM_PER_CALL, ERROR_CHARACTERS, INPUTS, PARTITIONS
from agentq.coordinator.errors import REFUSALS, AgentqError, Invalid, Unreachable
from agentq.coordinator.model.field_types import ENTRY_ID_PATTERN, Name, RunId, check_json_members, describe_error
from agentq.coordinator.storage.server_errors import NoGroup

PROTOCOL_VERSION = 1
WORKER_PATH = "/worker"
MESSAGE_BYTES = 32 << 20
"""The largest message that a worker may send."""
BLOCK_MS_MAX = 30_000

GOING_AWAY = 1001
TOO_LARGE = 1009
RESTARTING = 1012
BAD_MESSAGE = 4400
FORBIDDEN = 4403
TOO_SLOW = 4408
REPLACED = 4409
WRONG_PROTOCOL = 4426
CLOSE_REASONS = {
    GOING_AWAY: "it goes away, and others are there: the worker connects again at once",
    TOO_LARGE: "a message was too large",
    RESTARTING: "it ends, or cannot reach its store: the worker connects again at once",
    BAD_MESSAGE: "it does not understand a message: the worker ends",
    FORBIDDEN: "the token is no longer valid, or another worker has this name: the worker ends",
    TOO_SLOW: "the worker did not introduce itself in time",
    REPLACED: "another connection of the same worker has taken the place of this one",
    WRONG_PROTOCOL: "it speaks another version of the protocol: the worker ends",
}
"""Why the coordinator closes a connection. After any other code the worker reconnects with growing delays."""

ConnectionPurpose = Literal["heartbeat", "work"]
"""The lease has a connection of its own ("heartbeat"), which large messages cannot delay."""
ScriptArguments = Annotated[list[str | int], Field(fail_fast=True)]
RequestNumber = Annotated[int, Field(ge=0, lt=1 << 53)]
PartitionNumber = Annotated[int, Field(ge=0, lt=PARTITIONS)]


class _WireMessage(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    def to_wire(self) -> str:
        return self.model_dump_json()


class _CoordinatorMessage(_WireMessage):
    """A message of the coordinator. A worker ignores unknown fields of a newer version."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class InitMessage(_WireMessage):
    """The first message of a worker on a new connection."""

    type: Literal["init"] = "init"
    protocol: int = PROTOCOL_VERSION
    version: Annotated[str, Field(max_length=64)]
    worker: Name
    purpose: ConnectionPurpose


class WelcomeMessage(_CoordinatorMessage):
    """The answer with the coordinator's settings, which override the worker's own."""

    type: Literal["welcome"] = "welcome"
    protocol: int = PROTOCOL_VERSION
    version: str
    namespace: str
    partitions: Annotated[int, Field(ge=1, le=PARTITIONS)]
    heartbeat_ms: int
    lease_ms: int
    reap_grace_ms: int
    forget_ms: int
    tick_ms: int


class ScriptCallMessage(_WireMessage):
    """Run a script in a partition, with the arguments of its header."""

    type: Literal["call"] = "call"
    id: RequestNumber
    script: Annotated[str, Field(max_length=32)]
    partition: PartitionNumber
    words: ScriptArguments


class WatchMessage(_WireMessage):
    """Answer as soon as an entry arrives in one of these lanes or the inbox, or when the time is over.

    With `claim`, the arguments of a claim that follows at the end of the wait, in the one partition that is watched.
    """

    type: Literal["watch"] = "watch"
    id: RequestNumber
    lanes: dict[PartitionNumber, Annotated[list[str], Field(fail_fast=True)]]
    """By partition; the inbox of each is always watched."""
    block_ms: Annotated[int, Field(gt=0, le=BLOCK_MS_MAX)]
    claim: ScriptArguments | None = None


class WakeMessage(_WireMessage):
    """End the wait with that number; ignored if it has ended."""

    type: Literal["wake"] = "wake"
    id: RequestNumber


class PendingEntriesMessage(_WireMessage):
    """List the entries of these lanes that were delivered to the worker and not acknowledged."""

    type: Literal["pending"] = "pending"
    id: RequestNumber
    partition: PartitionNumber
    lanes: Annotated[list[str], Field(max_length=10 * CLAIM_PER_CALL, fail_fast=True)]


class _FencedMessage(_WireMessage):
    """A request about a run that this worker holds with this fence, or about its children."""

    id: RequestNumber
    run: RunId
    fence: Annotated[str, Field(max_length=128)]


class SubmitChildMessage(_FencedMessage):
    """Submit a child."""

    type: Literal["submit_child"] = "submit_child"
    child: RunId
    """Chosen by the worker. The child's id is derived from it, so that a repeated request submits one child."""
    spec: dict[str, Any]
    most: Annotated[int, Field(ge=0, le=CHILDREN_PER_RUN)]


class RunStateMessage(_FencedMessage):
    """Read the record of a child, or of the run itself."""

    type: Literal["run_state"] = "run_state"
    child: RunId


class ChildLogMessage(_FencedMessage):
    """Read about this many characters of a child's log, after a position."""

    type: Literal["child_log"] = "child_log"
    child: RunId
    after: Annotated[str, Field(pattern=ENTRY_ID_PATTERN)]
    characters: Annotated[int, Field(gt=0, le=1 << 20)]


class CancelChildMessage(_FencedMessage):
    """Cancel a child."""

    type: Literal["cancel_child"] = "cancel_child"
    child: RunId
    reason: Annotated[str, Field(max_length=ERROR_CHARACTERS)]


class AwaitChildMessage(_FencedMessage):
    """Answer when a child has ended, with true, or when the time is over."""

    type: Literal["await_child"] = "await_child"
    child: RunId
    within_ms: Annotated[int, Field(gt=0, le=BLOCK_MS_MAX)]


class SignalsMessage(_FencedMessage):
    """Read the signals that the run has not received yet."""

    type: Literal["signals"] = "signals"


class InputRunsMessage(_FencedMessage):
    """Read those of these runs that are inputs or dependencies of the run."""

    type: Literal["input_runs"] = "input_runs"
    runs: Annotated[list[RunId], Field(max_length=INPUTS, fail_fast=True)]


class FinishedTasksMessage(_FencedMessage):
    """Read the newest completed runs of its plan, if its context includes them."""

    type: Literal["finished_tasks"] = "finished_tasks"
    most: Annotated[int, Field(gt=0, le=INPUTS)]


class AnswerMessage(_CoordinatorMessage):
    """The reply to the request with that number."""

    type: Literal["answer"] = "answer"
    id: RequestNumber
    reply: Any


class RefusalMessage(_CoordinatorMessage):
    """The error of a request."""

    type: Literal["refusal"] = "refusal"
    id: RequestNumber
    kind: str
    message: str


HeldRunMessage = (
    SubmitChildMessage
    | RunStateMessage
    | ChildLogMessage
    | CancelChildMessage
    | AwaitChildMessage
    | SignalsMessage
    | InputRunsMessage
    | FinishedTasksMessage
)
WorkerQuestion = ScriptCallMessage | WatchMessage | PendingEntriesMessage | HeldRunMessage
WorkerMessage = Annotated[InitMessage | WakeMessage | WorkerQuestion, Field(discriminator="type")]
MESSAGE_TYPES = (
    InitMessage,
    WelcomeMessage,
    ScriptCallMessage,
    WatchMessage,
    WakeMessage,
    PendingEntriesMessage,
    SubmitChildMessage,
    RunStateMessage,
    ChildLogMessage,
    CancelChildMessage,
    AwaitChildMessage,
    SignalsMessage,
    InputRunsMessage,
    FinishedTasksMessage,
    AnswerMessage,
    RefusalMessage,
)
CoordinatorMessage = Annotated[WelcomeMessage | AnswerMessage | RefusalMessage, Field(discriminator="type")]
_worker_adapter: TypeAdapter[WorkerMessage] = TypeAdapter(WorkerMessage)
_coordinator_adapter: TypeAdapter[CoordinatorMessage] = TypeAdapter(CoordinatorMessage)

ERROR_CLASSES: dict[str, type[AgentqError]] = {
    kind.__name__: kind for kind in (*AgentqError.__subclasses__(), *(kind for kind, _ in REFUSALS.values()))
}


def parse_worker_message(text: str | bytes) -> WorkerMessage:
    """Parse a message of a worker."""
    check_json_members(text, ("spec",))
    try:
        return _worker_adapter.validate_json(text)
    except ValidationError as error:
        raise Invalid(f"The message is not understood: {describe_error(error)}") from error


def parse_coordinator_message(text: str | bytes) -> CoordinatorMessage:
    """Parse a message of the coordinator."""
    try:
        return _coordinator_adapter.validate_json(text)
    except ValidationError as error:
        raise Unreachable(f"What answers there is not a coordinator of agentq: {describe_error(error)}") from error


def make_refusal(number: int, error: AgentqError) -> RefusalMessage:
    """The refusal for an error, without the address of Redis, which the worker must not learn."""
    message = str(error)
    if message.startswith("The server ") or isinstance(error, Unreachable):
        later = (
            "cannot do that at the moment; it is tried again"
            if type(error) in _TRANSIENT_ERRORS
            else "does not do that"
        )
        message = f"The coordinator's server {later}."
    return RefusalMessage(id=number, kind=type(error).__name__, message=message)


def refusal_to_error(refusal: RefusalMessage) -> AgentqError:
    """The exception for a refusal."""
    return ERROR_CLASSES.get(refusal.kind, AgentqError)(refusal.message)


_TRANSIENT_ERRORS = (Unreachable, ERROR_CLASSES["TryLater"])
ERROR_CLASSES[NoGroup.__name__] = NoGroup
