"""The spec of a run as it is submitted, and the outcome that its worker reports.

The wire form of a spec is JSON with `"v": 1`, fields of default value left out. What decides where and when the run
waits (queue, priority, demands) is in its lane's name instead. A reader ignores fields that it does not know, so that
a newer minor version can add some; the submit refuses them.
"""

# Over 400 lines: the fields of a run's spec, with what each may say.

from __future__ import annotations

import json
import re
from typing import Annotated, Any, Literal, Self

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

from agentq.coordinator import bounds as most
from agentq.coordinator.errors import Incompatible, Invalid
from agentq.coordinator.model.agent_options import AGENT_LABEL, AGENT_READY, AgentBudgets, AgentTurnOptions
from agentq.coordinator.model.field_types import (
    ChildKinds,
    Demand,
    JsonValues,
    Label,
    LimitKey,
    LimitUnits,
    Milliseconds,
    Name,
    RetentionMs,
    RunId,
    RunIds,
    Text,
    TextList,
    TimeoutMs,
    Traceparent,
    check_program,
    check_variable_names,
    describe_error,
    limit_bytes,
)
from agentq.coordinator.model.lane import is_front_lane as is_front_lane
from agentq.coordinator.model.lane import is_function_lane as is_function_lane
from agentq.coordinator.model.lane import parse_lane as parse_lane
from agentq.coordinator.model.lifecycle import OutcomeClass
from agentq.coordinator.model.retry_policy import OutcomeClassPolicy
from agentq.coordinator.model.retry_policy import RetryPolicy as RetryPolicy
from agentq.coordinator.model.workspace import DeliveredWork, WorkspaceSpec

SPEC_WIRE_VERSION = 1
SECRETS_VARIABLE = "AGENTQ_SECRETS"
"""A variable of a run that names others, with commas or spaces between them, whose values are secret."""


class _StrictModel(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class ResourceLimits(_StrictModel):
    """Resources that a run may use; None is the worker's own. Without a cgroup, each process has its own bound."""

    memory_bytes: Annotated[int, Field(gt=0)] | None = None
    cpu_s: Annotated[int, Field(gt=0)] | None = None
    open_files: Annotated[int, Field(gt=0)] | None = None
    file_bytes: Annotated[int, Field(gt=0)] | None = None
    nice: Annotated[int, Field(ge=0, le=19)] | None = None
    umask: Annotated[int, Field(ge=0, le=0o777)] | None = None


class RunSpec(_StrictModel):
    """What to run, where and when."""

    kind: Literal["command", "function", "agent"]
    name: Annotated[Text, StringConstraints(max_length=most.NAME_LENGTH)] | None = None

    argv: Annotated[TextList, limit_bytes(most.ARGUMENTS_BYTES, "the command line"), AfterValidator(check_program)] = ()
    stdin: Annotated[str, limit_bytes(most.STDIN_BYTES, "stdin")] | None = None
    env: Annotated[
        dict[Text, Text], AfterValidator(check_variable_names), limit_bytes(most.ENVIRONMENT_BYTES, "the environment")
    ] = Field(default_factory=dict)
    cwd: Text | None = None
    function: Annotated[str, StringConstraints(pattern=r"^[\w.]+:[\w.]+$")] | None = None
    args: Annotated[JsonValues, limit_bytes(most.ARGUMENTS_BYTES, "the JSON of the arguments")] = ()
    kwargs: Annotated[dict[str, JsonValue], limit_bytes(most.ARGUMENTS_BYTES, "the JSON of the arguments")] = Field(
        default_factory=dict
    )
    agent: Name | None = None
    prompt: Annotated[str, limit_bytes(most.PROMPT_BYTES, "the prompt")] | None = None
    turn: AgentTurnOptions | None = None
    """Options of the agent."""
    workspace: WorkspaceSpec | None = None
    """The worktree that the run works in; `cwd` is then a folder in it."""
    inputs: Annotated[dict[Name, RunId], Field(max_length=most.INPUTS)] = Field(default_factory=dict)
    """Runs whose outcomes replace `{{ tasks.NAME.result }}` and the like in the prompt, the arguments or the env."""
    context: Literal["none", "dependencies", "plan"] = "none"
    """Finished tasks that are described in an agent's prompt."""
    labels: Annotated[dict[Label, Label], Field(max_length=most.LABELS)] = Field(default_factory=dict)
    timeout_ms: TimeoutMs | None = None
    """The maximum time of one attempt."""
    silence_timeout_ms: TimeoutMs | None = None
    """The maximum time without a byte of output."""
    stop_grace_ms: Milliseconds = most.STOP_GRACE_MS
    """The time from SIGTERM to SIGKILL."""
    on_drain: Literal["SIGHUP", "SIGINT", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGWINCH"] | None = None
    """The signal that a command's first process gets when its worker begins to drain; the run then continues."""
    caps: ResourceLimits | None = None

    queue: Name = "default"
    priority: Annotated[int, Field(ge=0, le=most.PRIORITY_MAX)] = 5
    demands: Annotated[dict[Label, Demand], Field(max_length=most.DEMANDS)] = Field(default_factory=dict)

    fair_key: Label | None = None
    """The key that takes turns with others in its queue."""
    delay_ms: Milliseconds | None = None
    due_at_ms: Annotated[int, Field(ge=0, le=most.DUE_AT_MS_MAX)] | None = None
    expires_ms: Milliseconds | None = None
    after: RunIds = ()
    on_failed: Literal["skip", "run", "fail"] = "skip"
    dedupe_key: Annotated[Text, StringConstraints(min_length=1, max_length=most.DEDUPE_KEY_LENGTH)] | None = None
    if_live: Literal["return", "reject", "replace", "debounce", "follow"] = "return"
    """What happens to it if a live run has its key; see the README."""
    dedupe_ttl_ms: TimeoutMs | None = None
    """How long after the submit its key stays taken, even if the run ends sooner."""
    debounce_max_ms: Milliseconds | None = None
    """The longest time that submits with its key can delay it, counted from the first of them."""
    plan: Name | None = None
    task: Name | None = None
    """Its name in its plan."""
    session: Name | None = None
    retry: RetryPolicy | None = None
    keep_ms: RetentionMs = most.KEEP_MS
    limits: Annotated[dict[LimitKey, LimitUnits], Field(max_length=most.LIMITS_PER_RUN)] = Field(default_factory=dict)
    """The limits that it needs capacity under, with the units it takes of a rate."""
    traceparent: Traceparent | None = None
    """The W3C traceparent of its submit. A submit that differs in nothing else is the same run."""
    parent: RunId | None = None
    """Its parent run, which can wait for it and does not leave it behind."""
    children: Literal["cancel", "leave"] = "cancel"
    """What happens to its live children if it ends in any other state than completed."""
    may_submit: Annotated[ChildKinds, Field(max_length=most.MAY_SUBMIT)] | None = None
    """What its attempts may submit as children: `agent` (as it is itself), `agent:NAME`, `command`, `function`.
    Without it an agent may submit `agent`, and all others nothing."""
    notes: Annotated[dict[str, JsonValue], limit_bytes(most.NOTES_BYTES, "the JSON of the notes")] = Field(
        default_factory=dict
    )
    """Data of the submitter, kept with the run and never interpreted."""

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        missing = {
            "command": "argv" if not self.argv else None,
            "function": "function" if self.function is None else None,
            "agent": "agent" if self.agent is None else "prompt" if not (self.prompt or "").strip() else None,
        }[self.kind]
        if missing:
            raise ValueError(f"a run of kind {self.kind!r} needs {missing!r}")
        if self.kind == "agent" and any(name.startswith("AGENTQ_") and name != SECRETS_VARIABLE for name in self.env):
            raise ValueError("an agent is given no variable of agentq's own, such as the address of the server")
        if self.delay_ms is not None and self.due_at_ms is not None:
            raise ValueError("give either delay_ms or due_at_ms, not both")
        if self.on_drain is not None and self.kind != "command":
            raise ValueError("on_drain is for runs of kind 'command'")
        if self.kind != "agent" and self.may_submit is not None and "agent" in self.may_submit:
            raise ValueError("may_submit 'agent' means the run's own agent; name one, such as 'agent:claude'")
        self._dedupes()
        self._works()
        return self

    def _works(self) -> None:
        """Check the fields about workspace and plan against the others."""
        if self.workspace is not None and self.kind not in ("command", "agent"):
            raise ValueError(f"a run of kind {self.kind!r} has no workspace; one of kind 'command' or 'agent' can have")
        if self.workspace is not None and self.cwd is not None and _leaves_folder(self.cwd):
            raise ValueError("with a workspace, cwd is a folder within it, such as 'web'")
        if self.inputs and self.kind not in ("command", "agent"):
            raise ValueError(f"a run of kind {self.kind!r} has no inputs")
        if self.context != "none" and self.kind != "agent":
            raise ValueError("context is for the prompt of an agent")
        if self.plan is None and (self.task is not None or self.context == "plan"):
            raise ValueError(f"{'task' if self.task else 'context'!r} means nothing without plan")
        if self.task is not None and self.dedupe_key is not None:
            raise ValueError("a task has no dedupe_key: in its plan there is one of its name")

    def _dedupes(self) -> None:
        """Check the fields about the dedupe key against each other."""
        if self.dedupe_ttl_ms is not None and self.dedupe_key is None:
            raise ValueError("dedupe_ttl_ms means nothing without dedupe_key")
        if self.dedupe_ttl_ms is not None and self.if_live not in ("return", "reject"):
            raise ValueError(
                f"with if_live {self.if_live!r} the key is free when the run ends, so it has no dedupe_ttl_ms"
            )
        if self.if_live == "debounce" and self.dedupe_key is not None and self.delay_ms is None:
            raise ValueError("if_live 'debounce' needs delay_ms, which begins anew with each submit")
        if self.debounce_max_ms is not None and self.if_live != "debounce":
            raise ValueError("debounce_max_ms is for if_live 'debounce'")

    @classmethod
    def checked(cls, **fields: Any) -> RunSpec:
        """Make a spec; raises `Invalid` with one sentence."""
        try:
            return cls(**fields)
        except ValidationError as error:
            raise Invalid(describe_error(error)) from error

    @property
    def lane(self) -> str:
        """The name of the lane that the run waits in."""
        mark = ("f" if self.kind == "function" else "") + ("" if self.fair_key is None else "~")
        asked = self.demands
        if self.kind == "agent":
            asked = {**asked, f"{AGENT_LABEL}{self.agent}": AGENT_READY}
        if not asked:
            return f"{self.queue}:{self.priority}{mark}:"
        demands = ",".join(f"{name}={value}" for name, value in sorted(asked.items()))
        return f"{self.queue}:{self.priority}{mark}:{demands}"

    @property
    def policy(self) -> RetryPolicy | None:
        """The retry policy, with the repairs of its workspace; None for the default policy."""
        return self.retry if self.workspace is None else self.workspace.tries(self.retry or RetryPolicy())

    def to_wire(self) -> bytes:
        """The spec as the executor reads it: the bare call of a plain function run, else JSON."""
        if (
            self.kind == "function"
            and self.model_fields_set <= _FUNCTION_CALL_FIELDS
            and not (self.args and self.kwargs)
        ):
            trace = f" {self.traceparent}" if self.traceparent else ""
            return f"{self.function}".encode() + to_json(self.kwargs or self.args) + trace.encode()
        left_out = _LANE_FIELDS | {"after"} if len(self.after) > most.DEPENDENCIES_PER_CALL else _LANE_FIELDS
        body = _to_json(self, exclude=left_out, exclude_defaults=True)
        if len(body) > most.SPEC_BYTES:
            raise Invalid(f"The run has {len(body)} bytes; {most.SPEC_BYTES} is the most. Pass large input as a file.")
        return _WIRE_PREFIX + body[1:]

    @property
    def has_only_lane_options(self) -> bool:
        """Whether the submit script decides nothing but the lane."""
        return self.model_fields_set.isdisjoint(_SUBMIT_FIELDS)

    def to_submit_options(self) -> dict[str, Any]:
        """The options of the submit script; see lua/run/submit.lua."""
        said = {name: getattr(self, name) for name in _PLAIN_SUBMIT_FIELDS if name in self.model_fields_set}
        options: dict[str, Any] = {name: value for name, value in said.items() if value is not None}
        if self.after:
            options["after"] = self.after[: most.DEPENDENCIES_PER_CALL]
        if len(self.after) > most.DEPENDENCIES_PER_CALL:
            options["open"] = True
        if self.dedupe_key is not None:
            options["dedupe_key"] = self.dedupe_key
        if self.limits:
            options["limits"] = " ".join(f"{key} {units}" for key, units in self.limits.items())
        if self.fair_key is not None:
            options["fair_key"] = self.fair_key
        if self.kind == "agent" and self.session is not None:
            options["agent"] = self.agent
        if self.policy is not None:
            options["retry"] = self.policy.model_dump_json(exclude_defaults=True, exclude_none=True)
        return options


_to_json = RunSpec.__pydantic_serializer__.to_json
_WIRE_PREFIX = b'{"v":%d,' % SPEC_WIRE_VERSION
_LANE_FIELDS = {"queue", "priority", "demands"}
_FUNCTION_CALL_FIELDS = {"kind", "function", "args", "kwargs", "traceparent", *_LANE_FIELDS}
_FUNCTION_CALL = re.compile(r"([\w.]+:[\w.]+)([\[{].*)", re.DOTALL)
_PLAIN_SUBMIT_FIELDS = (
    "delay_ms",
    "due_at_ms",
    "expires_ms",
    "on_failed",
    "if_live",
    "plan",
    "task",
    "session",
    "keep_ms",
    "parent",
    "children",
    "dedupe_ttl_ms",
    "debounce_max_ms",
)
_SUBMIT_FIELDS = {*_PLAIN_SUBMIT_FIELDS, "after", "dedupe_key", "retry", "workspace", "limits", "fair_key"}


def _leaves_folder(path: str) -> bool:
    return path.startswith("/") or ".." in path.split("/")


def parse_spec(text: str, lane: str) -> RunSpec:
    """Parse a stored spec."""
    call = _FUNCTION_CALL.fullmatch(text)
    if call is not None:
        words, traceparent = split_traceparent(call[2])
        given = json.loads(words)
        arguments = {"kwargs": given} if isinstance(given, dict) else {"args": given}
        body = {"kind": "function", "function": call[1], **arguments, **traceparent, **parse_lane(lane)}
        return RunSpec.model_validate_json(to_json(body))
    fields = json.loads(text)
    version = fields.pop("v", None)
    if version != SPEC_WIRE_VERSION:
        raise Incompatible(
            f"A run has wire version {version!r}; this agentq reads {SPEC_WIRE_VERSION}. Upgrade this side."
        )
    known = keep_known_fields(RunSpec, fields)
    for name, model in (("retry", RetryPolicy), ("caps", ResourceLimits), ("workspace", WorkspaceSpec)):
        if known.get(name):
            known[name] = keep_known_fields(model, known[name])
    if known.get("turn"):
        known["turn"] = keep_known_fields(AgentTurnOptions, known["turn"])
        if known["turn"].get("budgets"):
            known["turn"]["budgets"] = keep_known_fields(AgentBudgets, known["turn"]["budgets"])
    if known.get("retry", {}).get("classes"):
        own = known["retry"]["classes"]
        known["retry"]["classes"] = {name: keep_known_fields(OutcomeClassPolicy, of) for name, of in own.items()}
    return RunSpec.model_validate_json(to_json(known | parse_lane(lane)))


def split_traceparent(call: str) -> tuple[str, dict[str, str]]:
    """Split a call of a function, or its arguments, from the trace after it."""
    if call.endswith(("]", "}")):
        return call, {}
    bare_call, _, traceparent = call.rpartition(" ")
    return bare_call, {"traceparent": traceparent}


def keep_known_fields(model: type[BaseModel], fields: dict[str, Any]) -> dict[str, Any]:
    """The fields that this version knows."""
    names = {field.alias or name for name, field in model.model_fields.items()}
    return {name: value for name, value in fields.items() if name in names}


class ProcessUsage(BaseModel):
    """The processes of an attempt and the resources they used."""

    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True)

    pid: int
    host: str
    cwd: str
    user_ms: int
    system_ms: int
    peak_memory_bytes: int


class AgentSpending(BaseModel):
    """The spending of an agent in an attempt, a run or a session."""

    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True)

    cost_usd: float | None = None
    """None where the cost is unknown."""
    known_usd: float | None = None
    """Where the cost is unknown, the part of it that is known."""
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    turns: int = 0


class AgentOutcome(BaseModel):
    """How an agent's attempt ended, beyond its class."""

    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True)

    verdict: str
    """A verdict of the table in `worker/agentq/worker/agents/README.md`."""
    session: str | None = None
    """The agent's own id of the conversation."""
    model: str | None = None
    account: str | None = None
    spent: AgentSpending = AgentSpending()
    """The spending of this attempt."""
    denials: Annotated[tuple[str, ...], Field(fail_fast=True)] = ()
    duration_ms: int = 0


class Outcome(BaseModel):
    """How an attempt ended."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, defer_build=True)

    class_: Annotated[OutcomeClass, Field(alias="class"), PlainSerializer(str)] = OutcomeClass.OK
    exit_code: int | None = None
    signal: int | None = None
    error: Annotated[str, StringConstraints(max_length=most.ERROR_CHARACTERS)] | None = None
    tail: Annotated[str, StringConstraints(max_length=most.TAIL_CHARACTERS)] | None = None
    result: Annotated[JsonValue, limit_bytes(most.RESULT_BYTES, "the result")] = None
    usage: ProcessUsage | None = None
    agent: AgentOutcome | None = None
    work: DeliveredWork | None = None
    """The delivery, if the run had a workspace."""

    def to_wire(self) -> str:
        return self.model_dump_json(by_alias=True, exclude_none=True)
