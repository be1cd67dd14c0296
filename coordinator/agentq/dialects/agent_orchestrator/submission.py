"""What foreign clients ask for: a body of `POST /runs` in any dialect, and the turn of a session that it becomes.

    A   session_name, prompt, parent_session_name                     the name is the session's id; it must be new
    B   prompt, session_id?, parent_session_id, execution_mode, …     without an id the session gets one
    C   the same, with `parameters` in place of `prompt`

A start begins a session; a resume is the next turn of one, and waits in its line while another is under way. What goes
with a run is put down before the run, so that a crash in between leaves something that nobody misses.
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
from agentq.coordinator.sessions.verbs import Sessions, session_partition
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
    """A body, in the union of the dialects."""

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
        """Read a body, or say in one sentence what is wrong with it."""
        try:
            return cls.model_validate(body)
        except ValidationError as error:
            raise Invalid(describe_error(error)) from error

    @property
    def dialect(self) -> Dialect:
        return match_request(self.model_dump(exclude_none=True, include={"session_name", "parameters", "prompt"}))

    @property
    def names_session(self) -> str | None:
        """The session that a start is to begin, if the request says."""
        return self.session_name or self.session_id

    def given(self) -> dict[str, JsonValue]:
        """The parameters, wherever the dialect has them."""
        if self.parameters is not None:
            return self.parameters
        if self.prompt is None:
            raise Invalid('parameters: a run needs them, as in {"parameters": {"prompt": "…"}}.')
        return {"prompt": self.prompt}


@dataclass(frozen=True, slots=True)
class AcceptedRun:
    """What a client is told of its run."""

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
        """The code that clients of the dialect are used to."""
        return self.dialect.accepted


class ReservedIds(NamedTuple):
    """What is made up for a request before anything is done, so that it can be done again and is there once."""

    session: str
    run: str
    hook: str
    """The run of its start hook, if it has one."""


class BadDialectRequest(Invalid):
    """What the request needs is not in it."""


class DialectSubmitter:
    """Takes in what clients ask for."""

    def __init__(
        self,
        store: NamespaceStore,
        timing: RunnerTiming,
        shelf: BlueprintStore,
        conversing: DialectSessionStore,
        children: ChildRuns,
    ) -> None:
        self.store = store
        self.children = children
        self.timing = timing
        self.shelf = shelf
        self.conversing = conversing
        self.queue = RunVerbs(store)
        self.sessions = Sessions(store)

    def make(self, asked: DialectRunRequest) -> ReservedIds:
        """Names for what a request is going to make."""
        named = asked.names_session if asked.type == START_SESSION else self._resumed(asked)
        session = named or self._new_session()
        partition = session_partition(self.store, session)
        return ReservedIds(session, new_run_id(partition), new_run_id(partition))

    def submit(self, asked: DialectRunRequest, promised: ReservedIds | None = None) -> AcceptedRun:
        """Take in a run. What was promised to a request is made under these names, unless it is there already."""
        if promised is not None and self._is_there(promised.run):
            return AcceptedRun(promised.run, promised.session, asked.dialect)
        made = promised or self.make(asked)
        asked = self._with_scope(asked)
        if asked.type == START_SESSION:
            return self._start(asked, made, promised=promised is not None)
        return self._resume(asked, made)

    def _is_there(self, run_id: str) -> bool:
        return bool(self.store.connection.command("EXISTS", self.store.key(partition_of(run_id), "run", run_id)))

    def _start(self, asked: DialectRunRequest, made: ReservedIds, *, promised: bool) -> AcceptedRun:
        blueprint = self.shelf.check_agent(asked.agent_name) if asked.agent_name is not None else None
        parameters = asked.given()
        check_parameters(parameters, asked.agent_name, blueprint.parameters_schema if blueprint else None)
        self._check_hooks(blueprint)
        parent = self._parent(asked)
        session = made.session
        self.shelf.check_tools(blueprint, collect_values(parameters, asked.scope or {}, session, made.run))
        wanted = self._wanted(asked, blueprint)
        agent = self._executes(asked.agent_name, blueprint)
        spec = self._spec(asked, made, agent, parameters, blueprint, wanted, parent)
        try:
            self.sessions.new(session, agent, cwd=asked.project_dir)
        except Duplicate as taken:
            # What was promised may have been begun before, by a request that broke off.
            own = not asked.names_session or self.conversing.about(session).get("promised") == made.run
            if not (promised and own) and not self._never_begun(session):
                raise Duplicate(
                    f"Session '{session}' already exists. Please use a different session name."
                    if asked.session_name is not None
                    else f"Session '{session}' already exists"
                ) from taken
        self.conversing.note(
            session,
            promised=made.run if promised else "",
            project_dir=asked.project_dir or "",
            agent_name=asked.agent_name or "",
            parent=parent or "",
            dialect=asked.dialect.name,
            execution_mode=asked.execution_mode,
        )
        try:
            return self._put(asked, spec, made, blueprint)
        except Unreachable:
            raise  # perhaps it was submitted
        except AgentqError:
            self.conversing.discard(session)
            raise

    def _never_begun(self, session: str) -> bool:
        """Whether a session's only trace is runs that failed before their executor made it: its name is free there."""
        about = self.conversing.about(session)
        status = self.conversing.status_of(session, about)
        return not is_session_visible(about, status) and status in (FAILED, STOPPED)

    def _check_hooks(self, blueprint: Blueprint | None) -> None:
        """Refuse a blueprint whose hooks are no agents, before anything is made."""
        hooks = blueprint.hooks if blueprint is not None else None
        for hook in (hooks.on_run_start, hooks.on_run_finish) if hooks is not None else ():
            if hook is not None:
                self.shelf.check_agent(hook.agent_name)

    def _resumed(self, asked: DialectRunRequest) -> str:
        named = asked.session_id or asked.session_name
        if named is None:
            raise BadDialectRequest("session_id is required for resume_session")
        return self.conversing.found(named)

    def _resume(self, asked: DialectRunRequest, made: ReservedIds) -> AcceptedRun:
        session = made.session
        stored = self.sessions.get(session)
        about = self.conversing.about(session)
        blueprint = self.shelf.blueprint(about["agent_name"]) if about.get("agent_name") else None
        if blueprint is not None and blueprint.type == PROCEDURAL:
            raise InvalidWithDetail(
                {
                    "error": "procedural_agent_no_resume",
                    "message": "Procedural agents are stateless and cannot be resumed",
                    "agent_name": blueprint.name,
                }
            )
        parameters = asked.given()
        check_parameters(parameters, asked.agent_name, PROMPT_ONLY_SCHEMA)
        self._check_hooks(blueprint)
        asked = asked.model_copy(
            update={
                "agent_name": about.get("agent_name") or asked.agent_name,
                "project_dir": about.get("project_dir") or asked.project_dir,
            }
        )
        parent = self._parent(asked) or about.get("parent") or None
        wanted = self._wanted(asked, blueprint).below(self.conversing.affinity(about))
        self.shelf.check_tools(blueprint, collect_values(parameters, asked.scope or {}, session, made.run))
        spec = self._spec(asked, made, stored.agent, parameters, blueprint, wanted, parent)
        self.conversing.note(session, last_resumed_at=self.conversing.now(), **({"parent": parent} if parent else {}))
        return self._put(asked, spec, made, blueprint)

    def _put(
        self, asked: DialectRunRequest, spec: RunSpec, made: ReservedIds, blueprint: Blueprint | None
    ) -> AcceptedRun:
        """Hand in the run; before it, the hook that it waits for, and that its end is owed to somebody."""
        start = blueprint.hooks.on_run_start if blueprint is not None and blueprint.hooks is not None else None
        if start is not None:
            spec = self._behind(spec, start, made)
        notes = DialectNotes.of(spec)
        if notes.owes:
            self.conversing.owe(made.run)
        if notes.parent is not None:
            self.children.add(notes.parent, made.run)
        receipt = self.queue.submit(spec, run_id=made.run)
        return AcceptedRun(receipt.id, made.session, asked.dialect)

    def _behind(self, spec: RunSpec, hook: BlueprintHook, made: ReservedIds) -> RunSpec:
        """The run behind the one of its start hook, which is a run as any other: nobody is kept waiting for it."""
        notes = DialectNotes.of(spec)
        parameters: dict[str, JsonValue] = {**notes.parameters}
        if "prompt" not in parameters and spec.prompt is not None:
            parameters["prompt"] = spec.prompt
        asked = self.ask_hook(hook, parameters, near=made.session, queue=spec.queue, run_id=made.hook)
        kept = notes.model_copy(update={"hook": asked}).kept()
        return spec.model_copy(
            update={
                "after": (asked,),
                "on_failed": "fail" if hook.on_error == "block" else "run",
                "demands": {**spec.demands, HOOKS_LABEL: YES},
                "notes": kept,
            }
        )

    def ask_hook(
        self, hook: BlueprintHook, parameters: dict[str, JsonValue], *, near: str, queue: str, run_id: str | None = None
    ) -> str:
        """Submit a run of a hook's agent, in the partition of a session and the queue of its run; returns its id."""
        run_id = run_id or new_run_id(session_partition(self.store, near))
        blueprint = self.shelf.check_agent(hook.agent_name)
        wanted = self._demands(blueprint)
        spec = RunSpec.checked(
            kind="agent",
            agent=self._executes(hook.agent_name, blueprint),
            prompt=build_prompt(parameters),
            turn=self._turn(hook.agent_name, collect_values(parameters, {}, near, run_id)),
            queue=queue,
            demands=self._all(wanted, hook.agent_name),
            timeout_ms=round(hook.timeout_seconds * 1000),
            notes=DialectNotes(
                agent=hook.agent_name,
                parameters=drop_prompt(parameters),
                prompted=has_prompt(parameters),
            ).kept(),
        )
        return self.queue.submit(spec, run_id=run_id).id

    def _spec(
        self,
        asked: DialectRunRequest,
        made: ReservedIds,
        agent: str,
        parameters: dict[str, JsonValue],
        blueprint: Blueprint | None,
        wanted: DialectDemands,
        parent: str | None,
    ) -> RunSpec:
        session = made.session
        finish = blueprint.hooks.on_run_finish if blueprint is not None and blueprint.hooks is not None else None
        notes = DialectNotes(
            dialect=asked.dialect.name,
            type=asked.type,
            mode=self._mode(asked, session, parent),
            agent=asked.agent_name,
            parameters=drop_prompt(parameters),
            prompted=has_prompt(parameters),
            project=asked.project_dir,
            parent=parent,
            scope=asked.scope or {},
            wanted=wanted.model_dump(mode="json", exclude_none=True, exclude_defaults=True),
            finish=finish.model_dump(mode="json") if finish is not None else None,
        )
        return RunSpec.checked(
            kind="agent",
            agent=agent,
            prompt=build_prompt(parameters),
            turn=self._turn(asked.agent_name, collect_values(parameters, asked.scope or {}, session, made.run)),
            session=session,
            cwd=asked.project_dir,
            env={"AGENT_SESSION_NAME": session, "AGENT_SESSION_ID": session},
            queue=asked.queue,
            priority=asked.priority,
            demands=self._all(wanted, asked.agent_name or agent),
            expires_ms=self.timing.expires_ms,
            notes=notes.kept(),
        )

    def _mode(self, asked: DialectRunRequest, session: str, parent: str | None) -> ExecutionMode:
        """How a run is waited for: where a parent alone asks for a callback, each turn of its child makes one."""
        row = find_dialect(self.conversing.about(session).get("dialect") or asked.dialect.name)
        if row.calls_back_by == "parent" and parent not in (None, session):
            return "async_callback"
        return asked.execution_mode

    def _executes(self, name: str | None, blueprint: Blueprint | None) -> str:
        default = self.timing.runner_agent
        return default if name is None else self.shelf.executes(name, blueprint, default)

    def _turn(self, name: str | None, facts: PlaceholderValues) -> AgentTurnOptions | None:
        """What our workers tell the agent beside the prompt: the system prompt of its blueprint."""
        blueprint = self.shelf.filled(name, facts) if name is not None else None
        told = blueprint and blueprint.get("system_prompt")
        return AgentTurnOptions(system_prompt=str(told)) if told else None

    def _wanted(self, asked: DialectRunRequest, blueprint: Blueprint | None) -> DialectDemands:
        """What the request demands, and above it what its agent does."""
        return DialectDemands.read(asked.additional_demands).below(self._demands(blueprint))

    def _demands(self, blueprint: Blueprint | None) -> DialectDemands:
        if blueprint is None:
            return DialectDemands()
        kind = DialectDemands(executor_type=blueprint.type if blueprint.type == PROCEDURAL else None)
        return kind.below(DialectDemands.read(blueprint.demands))

    def _all(self, wanted: DialectDemands, agent: str) -> dict[str, str]:
        owner = self.shelf.owner(agent)
        return wanted.demands() | ({f"{OWNS_LABEL_PREFIX}{agent}": YES} if owner is not None else {})

    def _parent(self, asked: DialectRunRequest) -> str | None:
        named = asked.parent_session_id or asked.parent_session_name
        return named and (self.conversing.resolve(named) or named)

    def _with_scope(self, asked: DialectRunRequest) -> DialectRunRequest:
        """The request with the scope of its parent's newest run, below what it says itself."""
        parent = self._parent(asked)
        runs = self.conversing.turns(parent, most=1) if parent is not None else ()
        scope = {name: value for run in runs for name, value in DialectNotes.of(run.spec).scope.items()}
        return asked.model_copy(update={"scope": {**scope, **(asked.scope or {})}}) if scope else asked

    def _new_session(self) -> str:
        names = (f"ses_{secrets.token_hex(6)}" for _ in count())
        return next(name for name in names if not self.conversing.exists(name))

    def call_back(self, parent: str, text: str, answers: tuple[str, ...], run_id: str) -> None:
        """Hand the parent a turn that tells it how its children ended; sent twice it is one."""
        stored, about = self.sessions.get(parent), self.conversing.about(parent)
        asked = DialectRunRequest(
            type="resume_session",
            session_id=parent,
            prompt=text,
            project_dir=about.get("project_dir") or None,
            agent_name=about.get("agent_name") or None,
        )
        blueprint = self.shelf.blueprint(about["agent_name"]) if about.get("agent_name") else None
        wanted = self._wanted(asked, blueprint).below(self.conversing.affinity(about))
        made, above = ReservedIds(parent, run_id, ""), about.get("parent") or None
        spec = self._spec(asked, made, stored.agent, {"prompt": text}, blueprint, wanted, above)
        told = DialectNotes.of(spec).model_copy(update={"answers": answers}).kept()
        assert partition_of(run_id) == session_partition(self.store, parent)
        self.queue.submit(spec.model_copy(update={"notes": told}), run_id=run_id)
