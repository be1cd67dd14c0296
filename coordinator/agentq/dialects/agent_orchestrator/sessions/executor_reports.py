"""Handles reports of executors about their session: that it has begun, where it runs, its events.

Each report shows that the runner is alive, and renews its lease. It also starts the run, if the runner's own report of
that was lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agentq.coordinator.bounds import CONVERSATION_FIELD_CHARACTERS
from agentq.coordinator.errors import Duplicate, Fenced, Invalid, NotFound, WrongState
from agentq.coordinator.model.demands import HOST_LABEL
from agentq.coordinator.model.field_types import Name, describe_error
from agentq.coordinator.model.lifecycle import HELD_STATES, State
from agentq.coordinator.runs.run_record import RunRecord
from agentq.coordinator.runs.verbs import Claim
from agentq.coordinator.sessions.conversations import AgentConversations
from agentq.dialects.agent_orchestrator.runners.registration import BoundedText, is_runner_id
from agentq.dialects.agent_orchestrator.runners.registry import RunnerNotRegistered, RunnerRegistry
from agentq.dialects.agent_orchestrator.sessions.store import DialectSessionStore
from agentq.dialects.agent_orchestrator.submission import BadDialectRequest
from agentq.dialects.agent_orchestrator.timing import RunnerTiming
from agentq.server.http.problems import Denied

SessionFieldText = Annotated[str, Field(max_length=CONVERSATION_FIELD_CHARACTERS)]
ResponseFields = dict[str, Any]
BodyModel = TypeVar("BodyModel", bound=BaseModel)


class SessionStartBody(BaseModel):
    """The body of `POST /sessions`, as executors of dialect A send it."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    session_id: Name
    session_name: Name | None = None
    project_dir: BoundedText | None = None
    agent_name: Name | None = None
    parent_session_name: Name | None = None


class SessionBindBody(BaseModel):
    """The body of a bind, as executors of dialect C send it."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    executor_session_id: SessionFieldText
    hostname: BoundedText | None = None
    executor_profile: BoundedText | None = None
    executor_type: BoundedText | None = None
    project_dir: BoundedText | None = None


class SessionMetadataBody(BaseModel):
    """The fields of a session that can be changed."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    project_dir: BoundedText | None = None
    agent_name: Name | None = None
    last_resumed_at: SessionFieldText | None = None
    executor_session_id: SessionFieldText | None = None
    executor_profile: BoundedText | None = None
    executor_type: BoundedText | None = None
    hostname: BoundedText | None = None


class SessionEventBody(BaseModel):
    """An event."""

    model_config = ConfigDict(extra="allow", frozen=True)

    event_type: Annotated[str, Field(min_length=1, max_length=100)]
    session_id: str | None = None
    session_name: str | None = None
    timestamp: str | None = None


class ProcessExitBody(BaseModel):
    """A report that a process which waited for the next turn has exited."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    runner_id: str
    status: Literal["finished", "failed", "stopped"]


class ExecutorReports:
    """Handles the reports of executors."""

    def __init__(
        self, runner_registry: RunnerRegistry, session_store: DialectSessionStore, timing: RunnerTiming
    ) -> None:
        self.runner_registry = runner_registry
        self.session_store = session_store
        self.timing = timing
        self.conversations = AgentConversations(runner_registry.store)

    def begin_session(self, body: Any, bound_to: str | None) -> ResponseFields:
        """An executor of dialect A has begun its session, under an id of its own."""
        begun = _parse_body(SessionStartBody, body)
        name = begun.session_name or begun.session_id
        session = self.session_store.resolve(name)
        taken = Duplicate(f"Session '{name}' already exists. Please use a different session name.")
        if session is None:
            # A token that is bound to a runner may act only for runs that this runner holds.
            self._check_token(bound_to, None)
            try:
                self.session_store.sessions.new(
                    name, begun.agent_name or self.timing.runner_agent, cwd=begun.project_dir
                )
            except Duplicate:
                raise taken from None
            session = name
        live = self._get_live_turn(session, bound_to)
        if self.session_store.read_fields(session).get("given_id", begun.session_id) != begun.session_id:
            raise taken
        if begun.session_id != session:
            self.session_store.set_alias(begun.session_id, session)
        fields = {
            "given_id": begun.session_id,
            "project_dir": begun.project_dir,
            "agent_name": begun.agent_name,
            "parent": begun.parent_session_name,
            "dialect": "a",
        }
        self._record_binding(session, live, fields, begun.session_id)
        return {"ok": True, "session": self.session_store.describe(session)}

    def bind_session(self, named: str, body: Any, bound_to: str | None) -> ResponseFields:
        """An executor of dialect C has begun its session."""
        session, bound = self.session_store.get_name(named), _parse_body(SessionBindBody, body)
        live = self._get_live_turn(session, bound_to)
        self._record_binding(session, live, bound.model_dump(), bound.executor_session_id)
        return {"ok": True, "session": self.session_store.describe(session)}

    def _record_binding(
        self, session: str, live: RunRecord | None, fields: Mapping[str, str | None], agent_session: str
    ) -> None:
        """Record where a conversation runs, so that later turns go there."""
        changes = {name: value for name, value in fields.items() if value}
        changes |= {"executor_session_id": agent_session, "bound_at": self.session_store.timestamp()}
        if live is not None:
            changes |= {"bound_run": live.id, "bound_by": live.worker}
        self.session_store.set_fields(session, **changes)
        if live is not None and live.state in HELD_STATES and is_runner_id(live.worker):
            self._bind_conversation(session, live, agent_session)

    def _bind_conversation(self, session: str, live: RunRecord, agent_session: str) -> None:
        try:
            snapshot = self.runner_registry.get_snapshot(live.worker)
            host = self.runner_registry.get_identity(snapshot).labels[HOST_LABEL]
            if snapshot.registration.hostname and not self.session_store.read_fields(session).get("hostname"):
                self.session_store.set_fields(session, hostname=snapshot.registration.hostname)
            claim = Claim(live.id, live.fence, "", "")
            self.conversations.bind(claim, agent_session, host=host, movable=False)
        except (Fenced, WrongState, NotFound):
            return  # the run has continued elsewhere

    def change_metadata(self, named: str, body: Any, bound_to: str | None) -> ResponseFields:
        """Change fields of a session."""
        session, changed = self.session_store.get_name(named), _parse_body(SessionMetadataBody, body)
        self._get_live_turn(session, bound_to)
        self.session_store.set_fields(session, **changed.model_dump(exclude_none=True))
        return {"ok": True, "session": self.session_store.describe(session)}

    def append_event(self, named: str, body: Any, bound_to: str | None) -> str:
        """Store an event of a session; returns its id."""
        session, event = self.session_store.get_name(named), _parse_body(SessionEventBody, body)
        for other in filter(None, (event.session_id, event.session_name)):
            if self.session_store.resolve(other) != session:
                raise BadDialectRequest("session_id in the body is another than in the path")
        self._get_live_turn(session, bound_to)
        return self.session_store.append_event(session, event.model_dump(mode="json"))

    def report_exit(self, named: str, body: Any) -> None:
        """The process that waited for the next turn of a session has exited. A report of another runner is ignored."""
        session, exited = self.session_store.get_name(named), _parse_body(ProcessExitBody, body)
        self.runner_registry.get_snapshot(exited.runner_id)
        last = self.session_store.get_last_ended_turn(session)
        if exited.runner_id not in (self.session_store.read_fields(session).get("idle_at"), _find_last_holder(last)):
            return
        self.session_store.set_fields(
            session, idle_run="", idle_at="", exited_as=exited.status, exited_run=last.id if last is not None else ""
        )

    def _get_live_turn(self, session: str, bound_to: str | None) -> RunRecord | None:
        """The live turn of a session; renews the lease of its runner, and starts the run if that was not reported.

        `bound_to` is the token of a runner, which may act only for runs that this runner holds.
        """
        live = self.session_store.get_live_turn(session)
        if live is None or live.state not in HELD_STATES or not is_runner_id(live.worker):
            self._check_token(bound_to, None)
            return live
        try:
            snapshot = self.runner_registry.get_snapshot(live.worker)
        except RunnerNotRegistered:
            self._check_token(bound_to, None)
            return live
        self._check_token(bound_to, snapshot.fields.get("token", ""))
        if self.runner_registry.needs_renewal(snapshot):
            self.runner_registry.renew_lease(snapshot)
        if live.state is State.CLAIMED:
            self.runner_registry.run_verbs.start([Claim(live.id, live.fence, "", "")])
        return live

    def get_permitted_name(self, named: str, bound_to: str | None) -> str:
        """The name of a session that the caller may read: with a runner's token only if that runner had its last
        turn."""
        session = self.session_store.get_name(named)
        if bound_to is not None:
            run = self.session_store.get_live_turn(session) or self.session_store.get_last_ended_turn(session)
            worker = "" if run is None else run.worker or (run.attempts[-1].worker if run.attempts else "")
            try:
                self._check_token(
                    bound_to, self.runner_registry.get_snapshot(worker).fields.get("token", "") if worker else None
                )
            except RunnerNotRegistered:
                self._check_token(bound_to, None)
        return session

    def _check_token(self, bound_to: str | None, token: str | None) -> None:
        if bound_to is not None and bound_to != token:
            raise Denied("This token is a runner's, and the session is in no run that this runner holds.")


def _find_last_holder(run: RunRecord | None) -> str | None:
    return run.attempts[-1].worker if run is not None and run.attempts else None


def _parse_body(model: type[BodyModel], body: Any) -> BodyModel:
    try:
        return model.model_validate(body)
    except ValidationError as error:
        raise Invalid(describe_error(error)) from error
