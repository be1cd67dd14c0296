"""The requests of a run on its agent socket: to submit children and to manage them. Its tasks:

1. Parse a request, or say in one sentence what is wrong with it.
2. Allow it if it concerns the run itself or its children. The server ensures that a child has no more rights than the
   run.
3. Execute it, in a thread, as the attempt that asks: the server's scripts check that it still holds its run.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import to_json

from agentq.coordinator import bounds
from agentq.coordinator.errors import Invalid, NotAllowed
from agentq.coordinator.events.stream import STREAM_START
from agentq.coordinator.model.agent_options import AgentTurnOptions
from agentq.coordinator.model.field_types import (
    ENTRY_ID_PATTERN,
    FREE_JSON_FIELDS,
    RunId,
    check_json_members,
    check_members,
    describe_error,
)
from agentq.coordinator.model.spec import RunSpec, parse_spec
from agentq.coordinator.runs.children import AttemptChildren, WorkerChildren
from agentq.coordinator.runs.run_record import RunRecord
from agentq.coordinator.runs.verbs import Claim

WAIT_MS_MAX = 600_000
LOG_CHARACTERS = 256 << 10
INHERITED_FIELDS = {"fair_key", "demands", "caps", "timeout_ms", "silence_timeout_ms", "stop_grace_ms", "keep_ms"}
"""Fields that a child inherits unless it sets them, so that it stays within its parent's bounds."""


class _AgentRequest(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SubmitChildRequest(_AgentRequest):
    verb: Literal["submit"]
    spec: dict[str, Any]
    """As in `agentq submit --from-jsonl`."""


class ShowRunRequest(_AgentRequest):
    verb: Literal["show"]
    run: RunId


class WaitRunRequest(_AgentRequest):
    verb: Literal["wait"]
    run: RunId
    timeout_ms: Annotated[int, Field(ge=0, le=WAIT_MS_MAX)] = WAIT_MS_MAX


class ReadLogRequest(_AgentRequest):
    verb: Literal["logs"]
    run: RunId
    after: Annotated[str, Field(pattern=ENTRY_ID_PATTERN)] = STREAM_START


class CancelChildRequest(_AgentRequest):
    verb: Literal["cancel"]
    run: RunId
    reason: str = "cancelled by its parent"


class ReportProgressRequest(_AgentRequest):
    verb: Literal["progress"]
    progress: dict[str, Any]


AgentRequest = Annotated[
    SubmitChildRequest | ShowRunRequest | WaitRunRequest | ReadLogRequest | CancelChildRequest | ReportProgressRequest,
    Field(discriminator="verb"),
]
_request_adapter: TypeAdapter[AgentRequest] = TypeAdapter(AgentRequest)


def parse_request(line: bytes) -> AgentRequest:
    """Parse one line."""
    check_json_members(line, FREE_JSON_FIELDS)
    try:
        return _request_adapter.validate_json(line)
    except ValidationError as error:
        raise Invalid(f"The request is not understood: {describe_error(error)}") from error


def _parse_spec(fields: dict[str, Any]) -> RunSpec:
    check_members(fields, FREE_JSON_FIELDS)
    try:
        return RunSpec.model_validate_json(to_json(fields))
    except ValidationError as error:
        raise Invalid(describe_error(error)) from error


@dataclass(frozen=True)
class RequestHandler:
    """Executes the requests of one attempt."""

    children: WorkerChildren
    claim: Claim
    spec: RunSpec

    @cached_property
    def offspring(self) -> AttemptChildren:
        return self.children.of(self.claim)

    def submit(self, request: SubmitChildRequest) -> dict[str, Any]:
        """Submit a child. The server's script ensures that it has no more rights than its parent."""
        child = self._check_placement(_parse_spec(self._inherit_fields(request.spec)))
        return {"id": self.offspring.submit(child, most=bounds.CHILDREN_PER_AGENT)}

    @cached_property
    def _own(self) -> RunSpec:
        """The run's spec as submitted, not as placed in its worktree."""
        return parse_spec(self.claim.spec, self.claim.lane)

    def _inherit_fields(self, request: dict[str, Any]) -> dict[str, Any]:
        """The child's fields, with those of its parent where it has none."""
        own = self._own
        had = own.model_dump(mode="json", include=INHERITED_FIELDS, exclude_none=True, exclude_defaults=True)
        fields = {"queue": own.queue, "priority": own.priority, **had, **request}
        if "demands" in request and isinstance(request["demands"], dict):
            fields["demands"] = {**own.demands, **request["demands"]}
        if fields.get("kind") in ("agent", "command") and "workspace" not in request and self._has_folder:
            fields.setdefault("cwd", self.spec.cwd)
        turn = fields.get("turn", {})
        if fields.get("kind") == "agent" and isinstance(turn, dict):
            bounds = (own.turn or AgentTurnOptions()).model_dump(include={"account", "budgets"}, exclude_none=True)
            fields["turn"] = {**bounds, **turn}
        return fields

    @property
    def _has_folder(self) -> bool:
        """Whether it works elsewhere than in the home of the worker's user."""
        own = self._own
        return own.cwd is not None or own.workspace is not None or own.session is not None

    def show(self, request: ShowRunRequest | WaitRunRequest) -> RunRecord:
        """Read a child, or the run itself."""
        return self.offspring.get(request.run)

    def logs(self, request: ReadLogRequest) -> dict[str, Any]:
        """Read a child's log, a part at a time."""
        self._check_is_child(request.run)
        entries, more = self.offspring.written(request.run, request.after, LOG_CHARACTERS)
        return {"entries": [entry.model_dump(mode="json") for entry in entries], "more": more}

    def cancel(self, request: CancelChildRequest) -> dict[str, Any]:
        """Cancel a child."""
        self._check_is_child(request.run)
        return {"state": self.offspring.cancel(request.run, request.reason).value}

    def _check_is_child(self, run_id: str) -> None:
        if run_id == self.claim.id or self.offspring.get(run_id).id == self.claim.id:
            raise NotAllowed("A run can do that with its children only, not with itself.")

    def _check_placement(self, child: RunSpec) -> RunSpec:
        """Place a child in its parent's folder, by the name that the server knows; only this host can resolve links."""
        turn = self.spec.turn or AgentTurnOptions()
        if self.spec.kind != "agent" or turn.permissions == "full" or child.workspace is not None:
            return child
        here, there = (Path(os.path.realpath(each or Path.home())) for each in (self.spec.cwd, child.cwd))
        if not there.is_relative_to(here):
            raise NotAllowed(
                f"An agent that may only {turn.permissions} has children in its own folder, not in {there}."
            )
        if self._has_folder:
            named = Path(self.spec.cwd or "", there.relative_to(here))
            return child.model_copy(update={"cwd": str(named)})
        return child.model_copy(update={"cwd": None}) if there == here else child
