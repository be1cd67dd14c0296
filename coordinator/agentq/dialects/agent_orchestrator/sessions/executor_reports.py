"""What foreign executors say of the session that they are in: that it has begun, where, what happens in it.

Whatever they say shows that their runner is alive, and renews its lease; and that the run has begun, if its runner's
word of that was lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agentq.coordinator.bounds import CONVERSATION_FACT_CHARACTERS
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

FactText = Annotated[str, Field(max_length=CONVERSATION_FACT_CHARACTERS)]
Facts = dict[str, Any]
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
    """The body of a bind, as those of dialect C do."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    executor_session_id: FactText
    hostname: BoundedText | None = None
    executor_profile: BoundedText | None = None
    executor_type: BoundedText | None = None
    project_dir: BoundedText | None = None


class SessionMetadataBody(BaseModel):
    """What can be changed of a session."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    project_dir: BoundedText | None = None
    agent_name: Name | None = None
    last_resumed_at: FactText | None = None
    executor_session_id: FactText | None = None
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
    """That a process that waited for the next turn is gone."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    runner_id: str
    status: Literal["finished", "failed", "stopped"]


class ExecutorReports:
    """Takes what executors say."""

    def __init__(self, roster: RunnerRegistry, conversing: DialectSessionStore, timing: RunnerTiming) -> None:
        self.roster = roster
        self.conversing = conversing
        self.timing = timing
        self.conversations = AgentConversations(roster.store)

    def begin(self, body: Any, bound_to: str | None) -> Facts:
        """An executor of dialect A has begun its session, under an id of its own."""
        begun = _parse_body(SessionStartBody, body)
        name = begun.session_name or begun.session_id
        session = self.conversing.resolve(name)
        taken = Duplicate(f"Session '{name}' already exists. Please use a different session name.")
        if session is None:
            # Whoever may speak only of what its runner holds has nothing to begin.
            self._check(bound_to, None)
            try:
                self.conversing.sessions.new(name, begun.agent_name or self.timing.runner_agent, cwd=begun.project_dir)
            except Duplicate:
                raise taken from None
            session = name
        live = self._live(session, bound_to)
        if self.conversing.about(session).get("given_id", begun.session_id) != begun.session_id:
            raise taken
        if begun.session_id != session:
            self.conversing.give_alias(begun.session_id, session)
        facts = {
            "given_id": begun.session_id,
            "project_dir": begun.project_dir,
            "agent_name": begun.agent_name,
            "parent": begun.parent_session_name,
            "dialect": "a",
        }
        self._bind(session, live, facts, begun.session_id)
        return {"ok": True, "session": self.conversing.fields(session)}

    def bind(self, named: str, body: Any, bound_to: str | None) -> Facts:
        """An executor of dialect C has begun."""
        session, bound = self.conversing.found(named), _parse_body(SessionBindBody, body)
        live = self._live(session, bound_to)
        self._bind(session, live, bound.model_dump(), bound.executor_session_id)
        return {"ok": True, "session": self.conversing.fields(session)}

    def _bind(self, session: str, live: RunRecord | None, facts: Mapping[str, str | None], agent_session: str) -> None:
        """Note where a conversation is, so that its later turns go there."""
        said = {name: value for name, value in facts.items() if value}
        said |= {"executor_session_id": agent_session, "bound_at": self.conversing.now()}
        if live is not None:
            said |= {"bound_run": live.id, "bound_by": live.worker}
        self.conversing.note(session, **said)
        if live is not None and live.state in HELD_STATES and is_runner_id(live.worker):
            self._tie(session, live, agent_session)

    def _tie(self, session: str, live: RunRecord, agent_session: str) -> None:
        try:
            look = self.roster.look(live.worker)
            host = self.roster.who(look).labels[HOST_LABEL]
            if look.registration.hostname and not self.conversing.about(session).get("hostname"):
                self.conversing.note(session, hostname=look.registration.hostname)
            claim = Claim(live.id, live.fence, "", "")
            self.conversations.bind(claim, agent_session, host=host, movable=False)
        except (Fenced, WrongState, NotFound):
            return  # its run has gone on elsewhere

    def change(self, named: str, body: Any, bound_to: str | None) -> Facts:
        """Change what is known of a session."""
        session, changed = self.conversing.found(named), _parse_body(SessionMetadataBody, body)
        self._live(session, bound_to)
        self.conversing.note(session, **changed.model_dump(exclude_none=True))
        return {"ok": True, "session": self.conversing.fields(session)}

    def tell(self, named: str, body: Any, bound_to: str | None) -> str:
        """Something has happened in a session; the id of the event."""
        session, event = self.conversing.found(named), _parse_body(SessionEventBody, body)
        for other in filter(None, (event.session_id, event.session_name)):
            if self.conversing.resolve(other) != session:
                raise BadDialectRequest("session_id in the body is another than in the path")
        self._live(session, bound_to)
        return self.conversing.tell(session, event.model_dump(mode="json"))

    def exited(self, named: str, body: Any) -> None:
        """The process that waited for the next turn of a session is gone. Of another runner's it says nothing."""
        session, exited = self.conversing.found(named), _parse_body(ProcessExitBody, body)
        self.roster.look(exited.runner_id)
        last = self.conversing.last_ended(session)
        if exited.runner_id not in (self.conversing.about(session).get("idle_at"), _find_last_holder(last)):
            return
        self.conversing.note(
            session, idle_run="", idle_at="", exited_as=exited.status, exited_run=last.id if last is not None else ""
        )

    def _live(self, session: str, bound_to: str | None) -> RunRecord | None:
        """The turn that the session is in; whoever speaks of it is alive, and so is its runner.

        `bound_to` is the token of a runner that may speak only of what it holds.
        """
        live = self.conversing.live(session)
        if live is None or live.state not in HELD_STATES or not is_runner_id(live.worker):
            self._check(bound_to, None)
            return live
        try:
            look = self.roster.look(live.worker)
        except RunnerNotRegistered:
            self._check(bound_to, None)
            return live
        self._check(bound_to, look.fields.get("token", ""))
        if self.roster.is_worn(look):
            self.roster.beat(look)
        if live.state is State.CLAIMED:
            self.roster.queue.start([Claim(live.id, live.fence, "", "")])
        return live

    def permitted(self, named: str, bound_to: str | None) -> str:
        """A session that may be looked at: by a runner's token only if that runner has had its last turn."""
        session = self.conversing.found(named)
        if bound_to is not None:
            run = self.conversing.live(session) or self.conversing.last_ended(session)
            worker = "" if run is None else run.worker or (run.attempts[-1].worker if run.attempts else "")
            try:
                self._check(bound_to, self.roster.look(worker).fields.get("token", "") if worker else None)
            except RunnerNotRegistered:
                self._check(bound_to, None)
        return session

    def _check(self, bound_to: str | None, token: str | None) -> None:
        if bound_to is not None and bound_to != token:
            raise Denied("This token is a runner's, and the session is in no run that this runner holds.")


def _find_last_holder(run: RunRecord | None) -> str | None:
    return run.attempts[-1].worker if run is not None and run.attempts else None


def _parse_body(model: type[BodyModel], body: Any) -> BodyModel:
    try:
        return model.model_validate(body)
    except ValidationError as error:
        raise Invalid(describe_error(error)) from error
