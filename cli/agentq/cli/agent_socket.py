"""The backend within an agent's run: the few verbs that its worker does for it, over a socket of the run.

An agent does not get the address of the server. `AGENTQ_AGENT_SOCKET` names a socket of its worker, and `AGENTQ_TOKEN`
identifies its run. An address in AGENTQ_URL or --url takes precedence.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer

from agentq.coordinator import tracing
from agentq.coordinator.config.settings import URL_FILE_VARIABLE
from agentq.coordinator.errors import AgentqError, Invalid, NotAllowed, TryLater, Unreachable, WaitTimedOut
from agentq.coordinator.events.stream import STREAM_START
from agentq.coordinator.model.lifecycle import TERMINAL_STATES, State
from agentq.coordinator.model.spec import RunSpec
from agentq.coordinator.runs.logs import RunLogEntry
from agentq.coordinator.runs.run_record import RunRecord
from agentq.coordinator.runs.verbs import SubmitReceipt
from agentq.coordinator.runs.wait import SignalMessage
from agentq.sdk.wait.stream import Stream

if TYPE_CHECKING:
    from agentq.coordinator.explain.submission import SubmissionCheck

WAIT_MS = 300_000
"""How long to wait in one request."""
READ_BYTES = 1 << 20
POLL_MS = 500
ERROR_TYPES: tuple[type[AgentqError], ...] = (Invalid, NotAllowed, TryLater, WaitTimedOut, Unreachable)
REFUSAL = (
    "This is for people and programs that know the server, not for an agent in its run. An agent may submit children "
    "(`agentq submit --child`), and show, wait for, cancel and read the logs of these."
)


class _RefusedToAgents:
    """What agents may not do ends here, with a sentence."""

    def __get__(self, instance: object, owner: type) -> Any:
        raise NotAllowed(REFUSAL)


class AgentSocketBackend:
    """The backend within an agent's run: what an agent may do, and a refusal of everything else."""

    def __init__(self, path: str, token: str, run: str) -> None:
        self.run = run
        self._path = path
        self._greeting = {"run": run, "token": token}

    @classmethod
    def here(cls, ctx: typer.Context, environment: Mapping[str, str] = os.environ) -> AgentSocketBackend | None:
        """That of the run in which this is called; None where the server is reached as ever."""
        given = (
            (ctx.find_root().obj or {}).get("url")
            or environment.get("AGENTQ_URL")
            or environment.get(URL_FILE_VARIABLE)
        )
        path, token, run = (environment.get(f"AGENTQ_{name}") for name in ("AGENT_SOCKET", "TOKEN", "RUN_ID"))
        return cls(path, token, run) if path and token and run and not given else None

    # ---- what an agent may do

    def submit(self, spec: RunSpec, *, run_id: str | None = None, durable: bool = False) -> SubmitReceipt:  # noqa: ARG002
        """Submit a child, in the trace that its parent is in; every submit of an agent is durable."""
        if spec.parent is None:
            raise Invalid("Within an agent's run only its children can be submitted; add --child.")
        spec = tracing.add_traceparent(spec, tracing.validate_traceparent(os.environ.get(tracing.TRACEPARENT_VARIABLE)))
        fields = spec.model_dump(mode="json", exclude_unset=True) | {"kind": spec.kind}
        return SubmitReceipt(self._ask(verb="submit", spec=fields)["id"], created=True)

    def submit_many(self, specs: Iterable[RunSpec]) -> list[SubmitReceipt]:
        return list(map(self.submit, specs))

    def check(self, specs: Iterable[RunSpec]) -> SubmissionCheck:  # noqa: ARG002 - as elsewhere
        """An agent is told nothing of limits and workers."""
        from agentq.coordinator.explain.submission import SubmissionCheck

        return SubmissionCheck({}, [], {}, [])

    def find(self, text: str | None, *, live: bool = False) -> str:  # noqa: ARG002 - as elsewhere
        """An agent knows its children by their whole ids."""
        if text is None:
            raise Invalid("Within an agent's run, name the run by its whole id.")
        return text

    def get(self, run_id: str, *, given_to: str | None = None) -> RunRecord:  # noqa: ARG002 - as elsewhere
        """A child, or the run itself."""
        return RunRecord.model_validate_json(json.dumps(self._ask(verb="show", run=run_id)["run"]))

    def read(self, run_ids: Sequence[str]) -> list[RunRecord | AgentqError]:
        return list(map(self.get, run_ids))

    def signals(self, run_id: str) -> list[SignalMessage]:  # noqa: ARG002 - as elsewhere
        """None are told: a signal is for the program of its run."""
        return []

    def rq_titles(self, runs: Sequence[RunRecord]) -> dict[str, str]:  # noqa: ARG002 - as elsewhere
        """An agent's children are no jobs of RQ."""
        return {}

    def wait(self, run_id: str, timeout_ms: int | None = None) -> RunRecord:
        """A child, once it has ended."""
        while True:
            part_ms = WAIT_MS if timeout_ms is None else min(timeout_ms, WAIT_MS)
            try:
                answer = self._ask(part_ms, verb="wait", run=run_id, timeout_ms=part_ms)
                return RunRecord.model_validate_json(json.dumps(answer["run"]))
            except WaitTimedOut:
                if timeout_ms is not None and timeout_ms <= part_ms:
                    raise
                timeout_ms = None if timeout_ms is None else timeout_ms - part_ms

    def cancel(self, run_id: str, reason: str) -> State:
        """Cancel a child."""
        return State(self._ask(verb="cancel", run=run_id, reason=reason)["state"])

    def logs(self, run_id: str, after: str, *, follow: bool) -> Stream[RunLogEntry]:
        """What a child has written after a place up to now, or until it has ended."""
        return Stream(self._log_entries(run_id, after, follow))

    def close(self) -> None:
        """Each request has a connection of its own."""

    # ---- what it may not

    sessions = plans = endings = _RefusedToAgents()
    queues = limits = schedules = tokens = webhooks = workers = _RefusedToAgents()
    submitter = page = explain = forget = _RefusedToAgents()
    signal = approve = deny = wake = requeue = recent_events = events = events_of = _RefusedToAgents()

    # ---- the socket

    def _log_entries(self, run_id: str, after: str, follow: bool) -> Generator[RunLogEntry]:
        place: dict[str, Any] = {} if after == STREAM_START else {"after": after}
        while True:
            ended = not follow or self.get(run_id).state in TERMINAL_STATES
            answer = self._ask(verb="logs", run=run_id, **place)
            for entry in answer["entries"]:
                place = {"after": entry["id"]}
                yield RunLogEntry.model_validate(entry)
            if ended and not answer["more"]:
                return
            if follow and not answer["entries"]:
                self._pause(run_id)

    def _pause(self, run_id: str) -> None:
        """Until there may be more: it ends, or a moment has passed."""
        try:
            self.wait(run_id, POLL_MS)
        except WaitTimedOut:
            return

    def _ask(self, wait_ms: int = 0, **request: Any) -> dict[str, Any]:
        """Ask for one thing; what goes wrong is raised as it would be by a server."""
        message = f"{json.dumps(self._greeting)}\n{json.dumps(request)}\n".encode()
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(60 + wait_ms / 1000)
                connection.connect(self._path)
                connection.sendall(message)
                answer = b"".join(iter(lambda: connection.recv(READ_BYTES), b""))
        except OSError as error:
            raise Unreachable(
                f"The worker of this run does not answer at its socket: {error.strerror or error}."
            ) from error
        if not answer:
            raise Unreachable("The worker of this run has closed its socket; the attempt is over.")
        reply: dict[str, Any] = json.loads(answer)
        if reply.pop("ok"):
            return reply
        raise next((kind for kind in ERROR_TYPES if kind.exit_code == reply["code"]), RefusedByWorker)(reply["error"])


class RefusedByWorker(AgentqError):
    """The worker of this run refuses that."""

    exit_code = 5
