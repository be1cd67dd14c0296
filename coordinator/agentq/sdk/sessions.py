"""Conversations with agents: a session by its name, and its turns, which are runs.

Turns run one after the other. A turn sent while another runs waits in the session's queue; `send` does not block.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from agentq.coordinator.bounds import LIST_PER_CALL
from agentq.coordinator.errors import Duplicate, Invalid
from agentq.coordinator.sessions import verbs as state
from agentq.sdk.agent_options import AgentOptions, SessionOptions, build_agent_spec, take_budgets
from agentq.sdk.run_handle import Run

if TYPE_CHECKING:
    from agentq.sdk.backend import BackendOwner
    from agentq.sdk.backend.sessions import SessionVerbs


class Session:
    """A conversation with an agent, by its name."""

    __slots__ = ("_agent", "_client", "name")

    def __init__(self, client: BackendOwner, name: str, agent: str | None = None) -> None:
        self._client = client
        self._agent = agent
        self.name = name

    def send(self, prompt: str, **options: Unpack[AgentOptions]) -> Run[Any]:
        """Say something. The turn is a run; if another one goes on, it begins when that has ended."""
        if self._agent is None:
            self._agent = self.record().agent
        given: dict[str, Any] = {**options, "session": self.name}
        spec = build_agent_spec(self._agent, prompt, given)
        return Run(self._client, self._client.backend.submit(spec, durable=options.get("durable", False)).id, None)

    def turns(self) -> list[Run[Any]]:
        """Its turns that are kept, the first first."""
        ids: list[str] = []
        cursor: str | None = None
        while True:
            page = self._sessions.turns(self.name, limit=LIST_PER_CALL, cursor=cursor)
            ids += [run.id for run in page.runs]
            cursor = page.cursor
            if cursor is None:
                return [Run(self._client, run_id, None) for run_id in reversed(ids)]

    def record(self) -> state.SessionRecord:
        """Everything that is known of it: its state, what it has spent, which turn goes on."""
        return self._sessions.get(self.name)

    def fork(self, name: str | None = None) -> Session:
        """Another session that goes on from where this one is; both go on by themselves."""
        made = self._sessions.new(name, self.record().agent, fork=self.name)
        return Session(self._client, made.name, made.agent)

    def close(self, *, cancel: bool = False) -> None:
        """Refuse further turns. Those submitted already continue, or are cancelled with `cancel`."""
        self._sessions.close(self.name, cancel=cancel)

    @property
    def _sessions(self) -> SessionVerbs:
        return self._client.backend.sessions

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Session) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"<session {self.name}>"


def open_session(client: BackendOwner, name: str | None, options: SessionOptions) -> Session:
    """The session of that name; begun, if an agent is named and there is none yet."""
    unknown = options.keys() - SessionOptions.__annotations__.keys()
    if unknown:
        known = ", ".join(SessionOptions.__annotations__)
        raise Invalid(f"There is no option {sorted(unknown)[0]!r}; there are {known}.")
    given: dict[str, Any] = dict(options)
    agent, fork = given.pop("agent", None), given.pop("fork", None)
    if agent is None and fork is None:
        if name is None or given:
            raise Invalid("A session that is to begin needs an agent, as in client.session('parser', agent='claude').")
        return Session(client, name)
    sessions = client.backend.sessions
    agent = agent or sessions.get(fork).agent
    try:
        made = sessions.new(name, agent, budgets=take_budgets(given), fork=fork, **given)
    except Duplicate:
        made = sessions.get(name or "")
        if made.agent != agent:
            raise Invalid(f"The session {name} is one of {made.agent}, not of {agent}.") from None
    return Session(client, made.name, made.agent)
