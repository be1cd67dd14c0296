"""What a run is, on the way in and on the way out: spec, attempts, outcome.

The wire form of a spec is JSON with `"v": 1`, fields of default value left out. What decides where and when the run
waits (queue, priority, demands) is in its lane's name instead. A reader ignores fields that it does not know, so that
a newer minor version can add some; the door, where specs come in, refuses them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    PlainSerializer,
    StringConstraints,
    ValidationError,
    model_validator,
)
from pydantic_core import to_json

from agentq.coordinator import limits
from agentq.coordinator.errors import Incompatible, Invalid
from agentq.coordinator.identity import check_run_id
from agentq.coordinator.lifecycle import OutcomeClass, State

WIRE_VERSION = 1

Name = Annotated[str, StringConstraints(pattern=rf"^[A-Za-z0-9][A-Za-z0-9_.@+-]{{0,{limits.NAME_LENGTH - 1}}}$")]
"""A queue, plan, session or agent: safe in a key, a lane's name and a URL path."""

Label = Annotated[str, StringConstraints(pattern=rf"^[A-Za-z0-9][A-Za-z0-9_.@/+-]{{0,{limits.NAME_LENGTH - 1}}}$")]
"""The name or value of a label or demand."""


def _bounded(most: int, what: str) -> AfterValidator:
    def check(value: Any) -> Any:
        size = len(value.encode()) if isinstance(value, str) else len(to_json(value))
        if size > most:
            raise ValueError(f"{what} has {size} bytes; {most} is the most")
        return value

    return AfterValidator(check)


def _printable(text: str) -> str:
    if "\0" in text:
        raise ValueError("a NUL byte cannot be passed to a process")
    return text


Text = Annotated[str, AfterValidator(_printable)]
Milliseconds = Annotated[int, Field(ge=0, le=limits.DELAY_MS_MAX)]


def _run_id(text: str) -> str:
    try:
        check_run_id(text)
    except Invalid as invalid:
        raise ValueError(str(invalid)) from invalid
    return text


RunId = Annotated[str, AfterValidator(_run_id)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


if TYPE_CHECKING:
    Texts = Sequence[str]
    Values = Sequence[JsonValue]
    RunIds = Sequence[str]
    Classes = Sequence[OutcomeClass | str]
else:
    # Any sequence is taken, and kept as a tuple: pydantic copies a default that is a list for each object.
    _LOOSE = Field(strict=False)
    Texts = Annotated[tuple[Text, ...], _LOOSE]
    Values = Annotated[tuple[JsonValue, ...], _LOOSE]
    RunIds = Annotated[tuple[RunId, ...], _LOOSE]
    Classes = Annotated[tuple[Annotated[OutcomeClass, _LOOSE], ...], _LOOSE]


class RetryPolicy(_Strict):
    """What a run may spend, and how long it waits in between: exponential, with full jitter."""

    failures: Annotated[int, Field(ge=0, le=limits.RETRIES_MAX)] = limits.FAILURES
    crashes: Annotated[int, Field(ge=0, le=limits.RETRIES_MAX)] = limits.CRASHES
    deferrals: Annotated[int, Field(ge=0, le=limits.RETRIES_MAX)] = limits.DEFERRALS
    delay_ms: Milliseconds = limits.DELAY_MS
    factor: Annotated[float, Field(ge=1, le=100, allow_inf_nan=False)] = limits.DELAY_FACTOR
    delay_ms_max: Milliseconds = limits.BACKOFF_MS_MAX
    final: Classes = ()
    """Classes that are never tried again."""


class RunSpec(_Strict):
    """What is to be run, where and when."""

    kind: Literal["command", "function", "agent", "actor"]
    name: Annotated[Text, StringConstraints(max_length=limits.NAME_LENGTH)] | None = None

    argv: Annotated[Texts, _bounded(limits.ARGUMENTS_BYTES, "the command line")] = ()
    stdin: Annotated[str, _bounded(limits.STDIN_BYTES, "stdin")] | None = None
    env: Annotated[dict[Text, Text], _bounded(limits.ENVIRONMENT_BYTES, "the environment")] = Field(
        default_factory=dict
    )
    cwd: Text | None = None
    function: Annotated[str, StringConstraints(pattern=r"^[\w.]+:[\w.]+$")] | None = None
    args: Annotated[Values, _bounded(limits.ARGUMENTS_BYTES, "the arguments")] = ()
    kwargs: Annotated[dict[str, JsonValue], _bounded(limits.ARGUMENTS_BYTES, "the arguments")] = Field(
        default_factory=dict
    )
    agent: Name | None = None
    prompt: Annotated[str, _bounded(limits.PROMPT_BYTES, "the prompt")] | None = None
    labels: Annotated[dict[Label, Label], Field(max_length=limits.LABELS)] = Field(default_factory=dict)

    queue: Name = "default"
    priority: Annotated[int, Field(ge=0, le=limits.PRIORITY_MAX)] = 5
    demands: Annotated[dict[Label, Label], Field(max_length=limits.DEMANDS)] = Field(default_factory=dict)

    delay_ms: Milliseconds | None = None
    due_at_ms: Annotated[int, Field(ge=0)] | None = None
    expires_ms: Milliseconds | None = None
    after: RunIds = ()
    on_failed: Literal["skip", "run", "fail"] = "skip"
    dedupe_key: Annotated[Text, StringConstraints(min_length=1, max_length=limits.DEDUPE_KEY_LENGTH)] | None = None
    if_live: Literal["return", "reject", "replace"] = "return"
    plan: Name | None = None
    session: Name | None = None
    retry: RetryPolicy | None = None
    keep_ms: Milliseconds = limits.KEEP_MS

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        missing = {
            "command": "argv" if not self.argv else None,
            "function": "function" if self.function is None else None,
            "agent": "prompt" if self.prompt is None else None,
            "actor": "name" if self.name is None else None,
        }[self.kind]
        if missing:
            raise ValueError(f"a run of kind {self.kind!r} needs {missing!r}")
        if self.delay_ms is not None and self.due_at_ms is not None:
            raise ValueError("give either delay_ms or due_at_ms, not both")
        return self

    @classmethod
    def checked(cls, **fields: Any) -> RunSpec:
        """Make a spec, or say in one sentence what is wrong with it."""
        try:
            return cls(**fields)
        except ValidationError as error:
            raise Invalid(one_sentence(error)) from error

    @property
    def lane(self) -> str:
        """The name of the lane that the run waits in."""
        if not self.demands:
            return f"{self.queue}:{self.priority}:"
        demands = ",".join(f"{name}={value}" for name, value in sorted(self.demands.items()))
        return f"{self.queue}:{self.priority}:{demands}"

    def to_wire(self) -> bytes:
        """The spec as the executor will read it."""
        left_out = _IN_LANE | {"after"} if len(self.after) > limits.DEPENDENCIES_A_CALL else _IN_LANE
        body = _to_json(self, exclude=left_out, exclude_defaults=True)
        if len(body) > limits.SPEC_BYTES:
            raise Invalid(
                f"The run has {len(body)} bytes; {limits.SPEC_BYTES} is the most. Pass large input as a file."
            )
        return _OPENING + body[1:]

    @property
    def passes_the_door(self) -> bool:
        """Whether nothing has to be decided at submit but the lane."""
        return self.model_fields_set.isdisjoint(_AT_THE_DOOR)

    def to_door(self) -> dict[str, Any]:
        """What the submit script decides by; see lua/submit.lua."""
        door: dict[str, Any] = {name: getattr(self, name) for name in _AS_IT_IS if name in self.model_fields_set}
        if self.after:
            door["after"] = self.after[: limits.DEPENDENCIES_A_CALL]
        if len(self.after) > limits.DEPENDENCIES_A_CALL:
            door["open"] = True
        if self.dedupe_key is not None:
            door["dedupe"] = self.dedupe_key
        if self.retry is not None:
            door["retry"] = self.retry.model_dump_json(exclude_defaults=True)
        return door


_to_json = RunSpec.__pydantic_serializer__.to_json
_OPENING = b'{"v":%d,' % WIRE_VERSION
_IN_LANE = {"queue", "priority", "demands"}
_AS_IT_IS = ("delay_ms", "due_at_ms", "expires_ms", "on_failed", "if_live", "plan", "session", "keep_ms")
_AT_THE_DOOR = {*_AS_IT_IS, "after", "dedupe_key", "retry"}


def lane_parts(lane: str) -> dict[str, Any]:
    """Queue, priority and demands, as a lane's name tells them."""
    queue, priority, demands = lane.split(":", 2)
    pairs = dict(pair.split("=", 1) for pair in demands.split(",")) if demands else {}
    return {"queue": queue, "priority": int(priority), "demands": pairs}


def spec_from_wire(text: str, lane: str) -> RunSpec:
    """Read a spec back."""
    fields = json.loads(text)
    version = fields.pop("v", None)
    if version != WIRE_VERSION:
        raise Incompatible(f"A run has wire version {version!r}; this agentq reads {WIRE_VERSION}. Upgrade this side.")
    known = {name: value for name, value in fields.items() if name in RunSpec.model_fields}
    return RunSpec.model_validate_json(to_json(known | lane_parts(lane)))


class Outcome(BaseModel):
    """How an attempt ended."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    class_: Annotated[OutcomeClass, Field(alias="class"), PlainSerializer(str)] = OutcomeClass.OK
    exit_code: int | None = None
    signal: int | None = None
    error: Annotated[str, StringConstraints(max_length=limits.ERROR_CHARACTERS)] | None = None
    tail: Annotated[str, StringConstraints(max_length=limits.TAIL_CHARACTERS)] | None = None
    result: Annotated[JsonValue, _bounded(limits.RESULT_BYTES, "the result")] = None

    def to_wire(self) -> str:
        return self.model_dump_json(by_alias=True, exclude_none=True)


class Attempt(BaseModel):
    """One try at a run, and how it ended."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    attempt: int
    worker: str
    claimed_at_ms: int | None
    started_at_ms: int | None
    ended_at_ms: int | None
    verb: str | None
    outcome: Outcome | None


class Summary(BaseModel):
    """A run in a list."""

    model_config = ConfigDict(frozen=True)

    id: str
    state: State
    queue: str
    priority: int
    demands: dict[str, str]
    attempt: int
    worker: str
    reason: str
    submitted_at_ms: int


class Run(BaseModel):
    """A run as it stands."""

    model_config = ConfigDict(frozen=True)

    id: str
    spec: RunSpec
    state: State
    reason: str
    attempt: int
    fence: str
    worker: str
    submitted_at_ms: int
    due_at_ms: int | None
    stop_at_ms: int | None
    claimed_at_ms: int | None
    started_at_ms: int | None
    finished_at_ms: int | None
    failures: int
    crashes: int
    deferrals: int
    progress: JsonValue
    outcome: Outcome | None
    attempts: list[Attempt]
    """All attempts kept, oldest first, with the present one at the end."""

    @classmethod
    def from_hash(cls, run_id: str, fields: dict[str, str]) -> Run:
        """Read a run from its hash."""

        def number(name: str) -> int | None:
            return int(fields[name]) if fields.get(name) else None

        def parsed(name: str) -> Any:
            return json.loads(fields[name]) if fields.get(name) else None

        times = ("due_at_ms", "stop_at_ms", "claimed_at_ms", "started_at_ms", "finished_at_ms")
        run = {name: number(name) for name in times} | {
            "id": run_id,
            "spec": spec_from_wire(fields["spec"], fields["lane"]),
            "state": State(fields["state"]),
            "submitted_at_ms": int(fields["submitted_at_ms"]),
            "progress": parsed("progress"),
            "outcome": parsed("outcome"),
            **{name: fields.get(name, "") for name in ("reason", "fence", "worker")},
            **{name: number(name) or 0 for name in ("attempt", "failures", "crashes", "deferrals")},
        }
        return cls.model_validate(run | {"attempts": _attempts(run, fields)})


def _attempts(run: dict[str, Any], fields: dict[str, str]) -> list[dict[str, Any]]:
    ended = [json.loads(value) for name, value in fields.items() if name.startswith("attempt:")]
    ended.sort(key=lambda record: int(record["attempt"]))
    if run["attempt"] and not (ended and ended[-1]["attempt"] == run["attempt"]):
        present = {name: run[name] for name in ("attempt", "worker", "claimed_at_ms", "started_at_ms", "outcome")}
        ended.append(present | {"ended_at_ms": run["finished_at_ms"], "verb": None})
    return ended


def one_sentence(error: ValidationError) -> str:
    """What is wrong with the input, the first fault first."""
    faults = error.errors(include_url=False, include_context=False)
    first = faults[0]
    place = ".".join(str(part) for part in first["loc"])
    text = first["msg"].removeprefix("Value error, ")
    more = f" ({len(faults) - 1} more)" if len(faults) > 1 else ""
    return f"{place + ': ' if place else ''}{text}{more}."
