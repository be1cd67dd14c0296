"""Turns a body of `POST /runs` in any dialect into a turn of a session.

    A   session_name, prompt, parent_session_name                     the name is the session's id; it must be new
    B   prompt, session_id?, parent_session_id, execution_mode, …     without an id the session gets a new one
    C   as B, with `parameters` instead of `prompt`

`start_session` begins a session. `resume_session` adds its next turn, which is queued behind a turn under way. Records
that belong to a run are written before the run, so that a crash in between leaves only unused records.
"""

# Over 400 lines: a request of a client, from its body to the run.

from __future__ import annotations

import secrets
from dataclasses import dataclass
from itertools import count
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from agentq.coordinator.errors import AgentqError, Duplicate, Invalid, Unreachable
from agentq.coordinator.model.agent_options import AgentTurnOptions
from agentq.coordinator.model.field_types import Name, describe_error
from agentq.coordinator.model.ids import new_run_id, partition_of
from agentq.coordinator.model.spec import RunSpec
from agentq.coordinator.runs.verbs import RunVerbs
from agentq.coordinator.sessions.verbs import Sessions
from agentq.coordinator.storage.session_lookup import session_partition
from agentq.coordinator.storage.store import NamespaceStore
from agentq.dialects.agent_orchestrator.blueprints.models import Blueprint, BlueprintHook
from agentq.dialects.agent_orchestrator.blueprints.parameter_schema import (
    PROMPT_ONLY_SCHEMA,
    InvalidWithDetail,
    check_parameters,
)
from agentq.dialects.agent_orchestrator.blueprints.placeholders import PlaceholderValues, collect_values
from agentq.dialects.agent_orchestrator.blueprints.store import BlueprintStore
from agentq.dialects.agent_orchestrator.demands import DialectDemands
from agentq.dialects.agent_orchestrator.dialect_table import Dialect, find_dialect, match_request
from agentq.dialects.agent_orchestrator.run_translation import (
    START_SESSION,
    DialectNotes,
    ExecutionMode,
    build_prompt,
    drop_prompt,
    has_prompt,
)
from agentq.dialects.agent_orchestrator.runners.registration import (
    HOOKS_LABEL,
    OWNS_LABEL_PREFIX,
    PROCEDURAL,
    YES,
    BoundedText,
)
from agentq.dialects.agent_orchestrator.sessions.child_runs import ChildRuns
from agentq.dialects.agent_orchestrator.sessions.session_status import FAILED, STOPPED, is_session_visible
from agentq.dialects.agent_orchestrator.sessions.store import DialectSessionStore
from agentq.dialects.agent_orchestrator.timing import RunnerTiming


class DialectRunRequest(BaseModel):
    """The body of a request, with the fields of all dialects."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    type: Literal["start_session", "resume_session"]
    session_name: Name | None = None
    session_id: Name | None = None
    prompt: str | None = None
    parameters: dict[str, JsonValue] | None = None
    agent_name: Name | None = None
    project_dir: BoundedText | None = None
    parent_session_name: Name | None = None
    parent_session_id: Name | None = None
    execution_mode: ExecutionMode = "sync"
    additional_demands: dict[str, JsonValue] | None = None
    scope: dict[str, JsonValue] | None = None
    queue: Name = "default"
    priority: Annotated[int, Field(ge=0, le=9)] = 5

    @classmethod
    def read(cls, body: Any) -> DialectRunRequest:
        """Parse a body, or raise Invalid."""
        try:
            return cls.model_validate(body)
        except ValidationError as error:
            raise Invalid(describe_error(error)) from error

    @property
    def dialect(self) -> Dialect:
        return match_request(self.model_dump(exclude_none=True, include={"session_name", "parameters", "prompt"}))

    @property
    def named_session(self) -> str | None:
        """The name of the session to start, if the request has one."""
        return self.session_name or self.session_id

    def read_parameters(self) -> dict[str, JsonValue]:
        """The parameters, from the field of the dialect."""
        if self.parameters is not None:
            return self.parameters
        if self.prompt is None:
            raise Invalid('parameters: a run needs them, as in {"parameters": {"prompt": "…"}}.')
        return {"prompt": self.prompt}


@dataclass(frozen=True, slots=True)
class AcceptedRun:
    """The response to a request that was accepted."""

    run_id: str
    session_id: str
    dialect: Dialect

    def body(self) -> dict[str, str]:
        return {
            "run_id": self.run_id,
            "session_id": self.session_id,
            "session_name": self.session_id,
            "status": "pending",
        }

    @property
    def status(self) -> int:
        """The status code that clients of the dialect expect."""
        return self.dialect.accepted_status


class ReservedIds(NamedTuple):
    """Ids that are reserved for a request before it is executed, so that a repetition uses the same ones."""

    session: str
    run: str
    hook: str
    """The run of its start hook, if it has one."""


class BadDialectRequest(Invalid):
    """The request lacks a required field."""


class DialectSubmitter:
    """Submits runs of clients."""

    def __init__(
        self,
        store: NamespaceStore,
        timing: RunnerTiming,
        blueprints: BlueprintStore,
        session_store: DialectSessionStore,
        child_runs: ChildRuns,
    ) -> None:
        self.store = store
        self.child_runs = child_runs
        self.timing = timing
        self.blueprints = blueprints
        self.session_store = session_store
        self.run_verbs = RunVerbs(store)
        self.sessions = Sessions(store)

    def reserve_ids(self, request: DialectRunRequest) -> ReservedIds:
        """Reserve the ids for a request."""
        named = request.named_session if request.type == START_SESSION else self._resolve_session(request)
        session = named or self._make_session_name()
        partition = session_partition(self.store, session)
        return ReservedIds(session, new_run_id(partition), new_run_id(partition))

    def submit(self, request: DialectRunRequest, reserved: ReservedIds | None = None) -> AcceptedRun:
        """Submit a run. With reserved ids, a run that exists already is not submitted again."""
        if reserved is not None and self._run_exists(reserved.run):
            return AcceptedRun(reserved.run, reserved.session, request.dialect)
        ids = reserved or self.reserve_ids(request)
        request = self._inherit_scope(request)
        if request.type == START_SESSION:
            return self._start(request, ids, is_reserved=reserved is not None)
        return self._resume(request, ids)

    def _run_exists(self, run_id: str) -> bool:
        return bool(self.store.connection.command("EXISTS", self.store.key(partition_of(run_id), "run", run_id)))

    def _start(self, request: DialectRunRequest, ids: ReservedIds, *, is_reserved: bool) -> AcceptedRun:
        blueprint = self.blueprints.check_agent(request.agent_name) if request.agent_name is not None else None
        parameters = request.read_parameters()
        check_parameters(parameters, request.agent_name, blueprint.parameters_schema if blueprint else None)
        self._check_hooks(blueprint)
        parent = self._resolve_parent(request)
        session = ids.session
        self.blueprints.check_mcp_servers(blueprint, collect_values(parameters, request.scope or {}, session, ids.run))
        demands = self._request_demands(request, blueprint)
        agent = self._choose_agent(request.agent_name, blueprint)
        spec = self._build_spec(request, ids, agent, parameters, blueprint, demands, parent)
        try:
            self.sessions.new(session, agent, cwd=request.project_dir)
        except Duplicate as taken:
            # An earlier request with the same reserved ids may have been interrupted here.
            own = not request.named_session or self.session_store.read_fields(session).get("promised") == ids.run
            if not (is_reserved and own) and not self._is_name_free(session):
                raise Duplicate(
                    f"Session '{session}' already exists. Please use a different session name."
                    if request.session_name is not None
                    else f"Session '{session}' already exists"
                ) from taken
        self.session_store.set_fields(
            session,
            promised=ids.run if is_reserved else "",
            project_dir=request.project_dir or "",
            agent_name=request.agent_name or "",
            parent=parent or "",
            dialect=request.dialect.name,
            execution_mode=request.execution_mode,
        )
        try:
            return self._submit_run(request, spec, ids, blueprint)
        except Unreachable:
            raise  # perhaps it was submitted
        except AgentqError:
            self.session_store.delete(session)
            raise

    def _is_name_free(self, session: str) -> bool:
        """Whether a session has only runs that failed before their executor created it: its name can be used again."""
        session_fields = self.session_store.read_fields(session)
        status = self.session_store.read_status(session, session_fields)
        return not is_session_visible(session_fields, status) and status in (FAILED, STOPPED)

    def _check_hooks(self, blueprint: Blueprint | None) -> None:
        """Refuse a blueprint whose hooks name unknown agents, before anything is written."""
        hooks = blueprint.hooks if blueprint is not None else None
        for hook in (hooks.on_run_start, hooks.on_run_finish) if hooks is not None else ():
            if hook is not None:
                self.blueprints.check_agent(hook.agent_name)

    def _resolve_session(self, request: DialectRunRequest) -> str:
        named = request.session_id or request.session_name
        if named is None:
            raise BadDialectRequest("session_id is required for resume_session")
        return self.session_store.get_name(named)

    def _resume(self, request: DialectRunRequest, ids: ReservedIds) -> AcceptedRun:
        session = ids.session
        stored_session = self.sessions.get(session)
        session_fields = self.session_store.read_fields(session)
        blueprint = (
            self.blueprints.get_blueprint(session_fields["agent_name"]) if session_fields.get("agent_name") else None
        )
        if blueprint is not None and blueprint.type == PROCEDURAL:
            raise InvalidWithDetail(
                {
                    "error": "procedural_agent_no_resume",
                    "message": "Procedural agents are stateless and cannot be resumed",
                    "agent_name": blueprint.name,
                }
            )
        parameters = request.read_parameters()
        check_parameters(parameters, request.agent_name, PROMPT_ONLY_SCHEMA)
        self._check_hooks(blueprint)
        request = request.model_copy(
            update={
                "agent_name": session_fields.get("agent_name") or request.agent_name,
                "project_dir": session_fields.get("project_dir") or request.project_dir,
            }
        )
        parent = self._resolve_parent(request) or session_fields.get("parent") or None
        demands = self._request_demands(request, blueprint).merge_below(self.session_store.affinity(session_fields))
        self.blueprints.check_mcp_servers(blueprint, collect_values(parameters, request.scope or {}, session, ids.run))
        spec = self._build_spec(request, ids, stored_session.agent, parameters, blueprint, demands, parent)
        self.session_store.set_fields(
            session, last_resumed_at=self.session_store.timestamp(), **({"parent": parent} if parent else {})
        )
        return self._submit_run(request, spec, ids, blueprint)

    def _submit_run(
        self, request: DialectRunRequest, spec: RunSpec, ids: ReservedIds, blueprint: Blueprint | None
    ) -> AcceptedRun:
        """Submit the run; first its start hook, and a record of the callback that it needs."""
        start = blueprint.hooks.on_run_start if blueprint is not None and blueprint.hooks is not None else None
        if start is not None:
            spec = self._add_start_hook(spec, start, ids)
        notes = DialectNotes.from_spec(spec)
        if notes.needs_callback:
            self.session_store.add_pending_callback(ids.run)
        if notes.parent is not None:
            self.child_runs.add(notes.parent, ids.run)
        receipt = self.run_verbs.submit(spec, run_id=ids.run)
        return AcceptedRun(receipt.id, ids.session, request.dialect)

    def _add_start_hook(self, spec: RunSpec, hook: BlueprintHook, ids: ReservedIds) -> RunSpec:
        """The run, made dependent on a run of its start hook, so that no request waits for the hook."""
        notes = DialectNotes.from_spec(spec)
        parameters: dict[str, JsonValue] = {**notes.parameters}
        if "prompt" not in parameters and spec.prompt is not None:
            parameters["prompt"] = spec.prompt
        hook_run = self.submit_hook_run(hook, parameters, session=ids.session, queue=spec.queue, run_id=ids.hook)
        spec_notes = notes.model_copy(update={"hook": hook_run}).to_spec_notes()
        return spec.model_copy(
            update={
                "after": (hook_run,),
                "on_failed": "fail" if hook.on_error == "block" else "run",
                "demands": {**spec.demands, HOOKS_LABEL: YES},
                "notes": spec_notes,
            }
        )

    def submit_hook_run(
        self,
        hook: BlueprintHook,
        parameters: dict[str, JsonValue],
        *,
        session: str,
        queue: str,
        run_id: str | None = None,
    ) -> str:
        """Submit a run of a hook's agent, in the partition of a session and the queue of its run; returns its id."""
        run_id = run_id or new_run_id(session_partition(self.store, session))
        blueprint = self.blueprints.check_agent(hook.agent_name)
        demands = self._blueprint_demands(blueprint)
        spec = RunSpec.checked(
            kind="agent",
            agent=self._choose_agent(hook.agent_name, blueprint),
            prompt=build_prompt(parameters),
            turn=self._build_turn_options(hook.agent_name, collect_values(parameters, {}, session, run_id)),
            queue=queue,
            demands=self._spec_demands(demands, hook.agent_name),
            timeout_ms=round(hook.timeout_seconds * 1000),
            notes=DialectNotes(
                agent=hook.agent_name,
                parameters=drop_prompt(parameters),
                prompted=has_prompt(parameters),
            ).to_spec_notes(),
        )
        return self.run_verbs.submit(spec, run_id=run_id).id

    def _build_spec(
        self,
        request: DialectRunRequest,
        ids: ReservedIds,
        agent: str,
        parameters: dict[str, JsonValue],
        blueprint: Blueprint | None,
        demands: DialectDemands,
        parent: str | None,
    ) -> RunSpec:
        session = ids.session
        finish = blueprint.hooks.on_run_finish if blueprint is not None and blueprint.hooks is not None else None
        notes = DialectNotes(
            dialect=request.dialect.name,
            type=request.type,
            mode=self._choose_mode(request, session, parent),
            agent=request.agent_name,
            parameters=drop_prompt(parameters),
            prompted=has_prompt(parameters),
            project=request.project_dir,
            parent=parent,
            scope=request.scope or {},
            wanted=demands.model_dump(mode="json", exclude_none=True, exclude_defaults=True),
            finish=finish.model_dump(mode="json") if finish is not None else None,
        )
        return RunSpec.checked(
            kind="agent",
            agent=agent,
            prompt=build_prompt(parameters),
            turn=self._build_turn_options(
                request.agent_name, collect_values(parameters, request.scope or {}, session, ids.run)
            ),
            session=session,
            cwd=request.project_dir,
            env={"AGENT_SESSION_NAME": session, "AGENT_SESSION_ID": session},
            queue=request.queue,
            priority=request.priority,
            demands=self._spec_demands(demands, request.agent_name or agent),
            expires_ms=self.timing.expires_ms,
            notes=notes.to_spec_notes(),
        )

    def _choose_mode(self, request: DialectRunRequest, session: str, parent: str | None) -> ExecutionMode:
        """The execution mode. In a dialect where a parent alone requests a callback, each turn of a child sends one."""
        row = find_dialect(self.session_store.read_fields(session).get("dialect") or request.dialect.name)
        if row.callback_requested_by == "parent" and parent not in (None, session):
            return "async_callback"
        return request.execution_mode

    def _choose_agent(self, name: str | None, blueprint: Blueprint | None) -> str:
        default = self.timing.runner_agent
        return default if name is None else self.blueprints.choose_agent(name, blueprint, default)

    def _build_turn_options(self, name: str | None, values: PlaceholderValues) -> AgentTurnOptions | None:
        """The options for our workers: the blueprint's system prompt."""
        blueprint = self.blueprints.fill(name, values) if name is not None else None
        system_prompt = blueprint and blueprint.get("system_prompt")
        return AgentTurnOptions(system_prompt=str(system_prompt)) if system_prompt else None

    def _request_demands(self, request: DialectRunRequest, blueprint: Blueprint | None) -> DialectDemands:
        """The demands of the request, overridden by those of its agent."""
        return DialectDemands.read(request.additional_demands).merge_below(self._blueprint_demands(blueprint))

    def _blueprint_demands(self, blueprint: Blueprint | None) -> DialectDemands:
        if blueprint is None:
            return DialectDemands()
        kind = DialectDemands(executor_type=blueprint.type if blueprint.type == PROCEDURAL else None)
        return kind.merge_below(DialectDemands.read(blueprint.demands))

    def _spec_demands(self, demands: DialectDemands, agent: str) -> dict[str, str]:
        owner = self.blueprints.find_owner(agent)
        return demands.to_demands() | ({f"{OWNS_LABEL_PREFIX}{agent}": YES} if owner is not None else {})

    def _resolve_parent(self, request: DialectRunRequest) -> str | None:
        named = request.parent_session_id or request.parent_session_name
        return named and (self.session_store.resolve(named) or named)

    def _inherit_scope(self, request: DialectRunRequest) -> DialectRunRequest:
        """The request with the scope of its parent's newest run, overridden by its own."""
        parent = self._resolve_parent(request)
        runs = self.session_store.list_turns(parent, limit=1) if parent is not None else ()
        scope = {name: value for run in runs for name, value in DialectNotes.from_spec(run.spec).scope.items()}
        return request.model_copy(update={"scope": {**scope, **(request.scope or {})}}) if scope else request

    def _make_session_name(self) -> str:
        names = (f"ses_{secrets.token_hex(6)}" for _ in count())
        return next(name for name in names if not self.session_store.exists(name))

    def submit_callback(self, parent: str, text: str, answers: tuple[str, ...], run_id: str) -> None:
        """Submit a turn that tells the parent how its children ended. A repetition with the same id has no effect."""
        stored_session, session_fields = self.sessions.get(parent), self.session_store.read_fields(parent)
        request = DialectRunRequest(
            type="resume_session",
            session_id=parent,
            prompt=text,
            project_dir=session_fields.get("project_dir") or None,
            agent_name=session_fields.get("agent_name") or None,
        )
        blueprint = (
            self.blueprints.get_blueprint(session_fields["agent_name"]) if session_fields.get("agent_name") else None
        )
        demands = self._request_demands(request, blueprint).merge_below(self.session_store.affinity(session_fields))
        ids, grandparent = ReservedIds(parent, run_id, ""), session_fields.get("parent") or None
        spec = self._build_spec(request, ids, stored_session.agent, {"prompt": text}, blueprint, demands, grandparent)
        spec_notes = DialectNotes.from_spec(spec).model_copy(update={"answers": answers}).to_spec_notes()
        assert partition_of(run_id) == session_partition(self.store, parent)
        self.run_verbs.submit(spec.model_copy(update={"notes": spec_notes}), run_id=run_id)
