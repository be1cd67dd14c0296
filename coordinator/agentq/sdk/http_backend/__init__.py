"""A coordinator, reached over HTTP, as what a client works with. Nothing of it is imported where Redis is used."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import JsonValue

from agentq.coordinator import tracing
from agentq.coordinator.bounds import ARGUMENTS_BYTES, EVENTS_KEPT, JSON_ITEMS_MAX, SUBMIT_PER_CALL
from agentq.coordinator.errors import AgentqError, Invalid, NotFound, Refused
from agentq.coordinator.events.recent import RecentEvents
from agentq.coordinator.events.stream import STREAM_START, Event
from agentq.coordinator.explain.submission import SubmissionCheck, UnmetDemands, select_checked
from agentq.coordinator.model.ids import is_run_id
from agentq.coordinator.model.lifecycle import State
from agentq.coordinator.model.spec import RunSpec
from agentq.coordinator.public_json.runs import read_run_entry, read_signal
from agentq.coordinator.runs.logs import RunLogEntry
from agentq.coordinator.runs.queries import RunFilter, RunListPage
from agentq.coordinator.runs.run_record import RunRecord
from agentq.coordinator.runs.verbs import SubmitReceipt
from agentq.coordinator.runs.wait import SignalMessage, signal_arguments
from agentq.sdk.backend.runs import Explanation
from agentq.sdk.http_backend.errors import problem_error
from agentq.sdk.http_backend.event_stream import END_EVENT, GAP_EVENT, OPENING_EVENT, ResumableStream
from agentq.sdk.http_backend.http_client import HttpClient, new_request_key
from agentq.sdk.http_backend.run_watcher import RUNS_PER_REQUEST, HttpRunWatcher
from agentq.sdk.wait.event_streams import PositionedEvent
from agentq.sdk.wait.run_ends import RunWaiters
from agentq.sdk.wait.stream import Stream

if TYPE_CHECKING:
    from agentq.sdk.http_backend.plans import HttpPlans
    from agentq.sdk.http_backend.queues import HttpLimits, HttpQueues
    from agentq.sdk.http_backend.schedules import HttpSchedules
    from agentq.sdk.http_backend.sessions import HttpSessions
    from agentq.sdk.http_backend.tokens import HttpTokens
    from agentq.sdk.http_backend.webhooks import HttpWebhooks
    from agentq.sdk.http_backend.workers import HttpWorkers

MESSAGE_BYTES_MAX = 4 << 20
"""Of many runs, so many bytes go in one request, and one run at the least."""
LOG_ENTRIES_MAX = 500


class HttpBackend:
    """One coordinator, reached by one process."""

    def __init__(self, url: str, token: str | Path | None = None, *, home: str = "") -> None:
        self._wire = HttpClient(url, token, home)
        self._runs = HttpRunWatcher(self._wire)
        self.endings = RunWaiters(self._runs)

    @cached_property
    def plans(self) -> HttpPlans:
        from agentq.sdk.http_backend.plans import HttpPlans

        return HttpPlans(self._wire)

    @cached_property
    def sessions(self) -> HttpSessions:
        from agentq.sdk.http_backend.sessions import HttpSessions

        return HttpSessions(self._wire)

    @cached_property
    def queues(self) -> HttpQueues:
        from agentq.sdk.http_backend.queues import HttpQueues

        return HttpQueues(self._wire)

    @cached_property
    def limits(self) -> HttpLimits:
        from agentq.sdk.http_backend.queues import HttpLimits

        return HttpLimits(self._wire)

    @cached_property
    def schedules(self) -> HttpSchedules:
        from agentq.sdk.http_backend.schedules import HttpSchedules

        return HttpSchedules(self._wire)

    @cached_property
    def tokens(self) -> HttpTokens:
        from agentq.sdk.http_backend.tokens import HttpTokens

        return HttpTokens(self._wire)

    @cached_property
    def webhooks(self) -> HttpWebhooks:
        from agentq.sdk.http_backend.webhooks import HttpWebhooks

        return HttpWebhooks(self._wire)

    @cached_property
    def workers(self) -> HttpWorkers:
        from agentq.sdk.http_backend.workers import HttpWorkers

        return HttpWorkers(self._wire)

    # ---- submitting

    def submitter(self, template: RunSpec) -> _HttpSubmitter:
        return _HttpSubmitter(self, template)

    def submit(self, spec: RunSpec, *, run_id: str | None = None, durable: bool = False) -> SubmitReceipt:
        return self.submit_text(_spec_json(spec), run_id=run_id, durable=durable)

    def submit_many(self, specs: Iterable[RunSpec]) -> list[SubmitReceipt]:
        return self.submit_texts(map(_spec_json, specs))

    def submit_text(self, text: str, *, run_id: str | None = None, durable: bool = False) -> SubmitReceipt:
        """Submit one run, given as JSON."""
        query = {"durable": "true" if durable else None, "id": run_id}
        key = new_request_key() if run_id is None else None
        with tracing.submit_span() as (trace, tell):
            told = self._wire.post("/runs", text.encode(), key=key, query=query, trace=trace)
            tell(told["id"], 1)
        return SubmitReceipt(told["id"], told["created"])

    def submit_texts(self, texts: Iterable[str]) -> list[SubmitReceipt]:
        """Submit many, each request with a key of its own."""
        receipts: list[SubmitReceipt] = []
        for message in _split_messages(texts):
            body = f'{{"runs":[{",".join(message)}]}}'.encode()
            with tracing.submit_span() as (trace, tell):
                told = self._wire.post("/runs", body, key=new_request_key(), trace=trace)
                tell("", len(told["runs"]))
            receipts += map(_parse_receipt, told["runs"])
        return receipts

    def check(self, specs: Iterable[RunSpec]) -> SubmissionCheck:
        found = SubmissionCheck({}, [], {}, [])
        for message in _split_messages(map(_spec_json, select_checked(specs))):
            told = self._wire.post("/runs/check", f'{{"runs":[{",".join(message)}]}}'.encode())
            found.unset_limits.update(told["unset_limits"])
            found.unoffered_agents.extend(told["unoffered_agents"])
            found.unserved_queues.extend(told["unserved_queues"])
            found.unmet.update((each["lane"], UnmetDemands(each["demands"], each["because"])) for each in told["unmet"])
        return found

    # ---- what is said of runs

    def find(self, text: str | None, *, live: bool = False) -> str:
        if text is not None and is_run_id(text):
            return text
        found = self._wire.get("/records/find", {"run": text, "live": "true" if live else None})
        return str(found["id"])

    def get(self, run_id: str, *, given_to: str | None = None) -> RunRecord:
        return self._runs.get(run_id, given_to=given_to)

    def read(self, run_ids: Sequence[str]) -> list[RunRecord | AgentqError]:
        found = self._runs.read(run_ids)
        return [found[run_id] for run_id in run_ids]

    def page(self, which: RunFilter, *, limit: int = 100, cursor: str | None = None) -> RunListPage:
        assert not which.queues, "a coordinator knows the queues of its token"
        query = {
            "state": None if which.states == tuple(State) else ",".join(which.states),
            "queue": which.queue,
            "plan": which.plan,
            "session": which.session,
            "outcome": which.class_,
            "since_ms": which.since_ms,
            "until_ms": which.until_ms,
            "ended_since_ms": which.ended_since_ms,
            "ended_until_ms": which.ended_until_ms,
            "made_by": which.made_by or None,
            "limit": limit,
            "cursor": cursor,
        }
        told = self._wire.get("/runs", query)
        return RunListPage([read_run_entry(run) for run in told["runs"]], told["next"])

    def explain(self, run_id: str) -> Explanation:
        told = self._wire.get(f"/runs/{run_id}/why")
        return Explanation(State(told["state"]), told["because"])

    def signals(self, run_id: str) -> list[SignalMessage]:
        return [read_signal(each) for each in self._wire.get(f"/runs/{run_id}/signals")["signals"]]

    def rq_titles(self, runs: Sequence[RunRecord]) -> dict[str, str]:
        titles: dict[str, str] = {}
        for at in range(0, len(runs), RUNS_PER_REQUEST):
            ids = [run.id for run in runs[at : at + RUNS_PER_REQUEST]]
            titles |= self._wire.post("/records/rq-titles", {"ids": ids})["titles"]
        return titles

    def wait(self, run_id: str, timeout_ms: int | None = None) -> RunRecord:
        return self.endings.wait_or_fail(run_id, timeout_ms)

    def cancel(self, run_id: str, reason: str) -> State:
        return self._verb(run_id, "cancel", {"reason": reason})

    def signal(self, run_id: str, name: str, data: JsonValue, *, by: str) -> State:
        signal_arguments(name, data, by)  # refuses what cannot be sent; who sent it is told by the token
        return self._verb(run_id, "signal", {"name": name, "data": data})

    def approve(self, run_id: str, comment: str, *, by: str) -> State:  # noqa: ARG002
        return self._verb(run_id, "approve", {"comment": comment})

    def deny(self, run_id: str, comment: str, *, by: str) -> State:  # noqa: ARG002
        return self._verb(run_id, "deny", {"comment": comment})

    def wake(self, run_id: str) -> State:
        return self._verb(run_id, "wake")

    def requeue(self, run_id: str) -> State:
        return self._verb(run_id, "retry")

    def forget(self, ended: Sequence[tuple[str, State]]) -> list[AgentqError | None]:
        return [self._forget(run_id, state) for run_id, state in ended]

    def _forget(self, run_id: str, state: State) -> AgentqError | None:
        try:
            self._wire.say("DELETE", f"/runs/{run_id}", query={"state": state})
        except (Refused, NotFound) as refused:
            return refused
        return None

    def _verb(self, run_id: str, verb: str, body: object = None) -> State:
        return State(self._wire.post(f"/runs/{run_id}/{verb}", body, key=new_request_key())["state"])

    # ---- what it tells

    def logs(self, run_id: str, after: str, *, follow: bool) -> Stream[RunLogEntry]:
        path = f"/runs/{run_id}/logs"
        if not follow:
            return Stream(self._log(path, after))
        listening = ResumableStream(self._wire, path, {"follow": "true"}, last=None if after == STREAM_START else after)
        return Stream(_iterate_log_entries(listening), listening.interrupt)

    def _log(self, path: str, after: str) -> Generator[RunLogEntry]:
        while True:
            page = self._wire.get(path, {"after": after, "limit": LOG_ENTRIES_MAX})
            yield from map(_parse_log_entry, page["entries"])
            after = page["next"]
            if len(page["entries"]) < LOG_ENTRIES_MAX:
                return

    def recent_events(self, limit: int, *, since_ms: int = 0, run_id: str | None = None) -> RecentEvents:
        query = {"limit": min(limit, EVENTS_KEPT), "since_ms": since_ms, "run": run_id}
        told = self._wire.get("/events/recent", query)
        return RecentEvents(list(map(Event.from_public_json, told["events"])), told["next"])

    def events(self, after: str | None, *, follow: bool) -> Stream[PositionedEvent]:
        query = {"after": after, "follow": None if follow else "false"}
        listening = ResumableStream(self._wire, "/events", query)
        return Stream(_iterate_events(listening), listening.interrupt)

    def events_of(self, run_id: str, after: str | None, *, follow: bool) -> Stream[Event]:
        query = {"follow": None if follow else "false"}
        listening = ResumableStream(self._wire, f"/runs/{run_id}/events", query, last=after)
        return Stream(_iterate_run_events(listening), listening.interrupt)

    def close(self) -> None:
        self.endings.close()


class _HttpSubmitter:
    """Submits calls of one function."""

    def __init__(self, remote: HttpBackend, template: RunSpec) -> None:
        self._remote = remote
        self._before = _spec_json(template)[:-1]

    def submit(self, arguments: str, *, durable: bool = False) -> SubmitReceipt:
        return self._remote.submit_text(self._text(arguments), durable=durable)

    def submit_many(self, arguments: Sequence[str]) -> list[SubmitReceipt]:
        return self._remote.submit_texts(list(map(self._text, arguments)))

    def _text(self, arguments: str) -> str:
        if len(arguments) > ARGUMENTS_BYTES // 4 and len(arguments.encode()) > ARGUMENTS_BYTES:
            raise Invalid(
                f"The JSON of the arguments has {len(arguments.encode())} bytes; {ARGUMENTS_BYTES} is the most. "
                "Pass large input as a file."
            )
        return f'{self._before},"{"kwargs" if arguments.startswith("{") else "args"}":{arguments}}}'


def _spec_json(spec: RunSpec) -> str:
    return spec.model_dump_json(exclude_unset=True, by_alias=True)


def _split_messages(texts: Iterable[str]) -> Iterator[list[str]]:
    rest = iter(texts)
    message: list[str] = []
    size = items = 0
    for text in rest:
        more = text.count(",") + 2 * text.count(":") + 1  # at the most: some may be within texts
        size, items = size + len(text), items + more
        if message and (len(message) == SUBMIT_PER_CALL or size > MESSAGE_BYTES_MAX or items > JSON_ITEMS_MAX):
            yield message
            message, size, items = [], len(text), more
        message.append(text)
    if message:
        yield message


def _parse_receipt(told: dict[str, Any]) -> SubmitReceipt:
    return SubmitReceipt(told["id"], told["created"], problem_error(told["refused"]) if "refused" in told else None)


def _parse_log_entry(told: dict[str, Any]) -> RunLogEntry:
    return RunLogEntry.model_validate({**told, "at": told["from_byte"]})


def _iterate_log_entries(listening: ResumableStream) -> Generator[RunLogEntry]:
    for told in listening.items(patient=False):
        if told.name not in (OPENING_EVENT, END_EVENT):
            yield _parse_log_entry(told.facts)


def _iterate_events(listening: ResumableStream) -> Generator[PositionedEvent]:
    for told in listening.items(patient=False):
        if told.name not in (OPENING_EVENT, GAP_EVENT, END_EVENT):
            yield PositionedEvent.from_public_json({**told.facts, "place": told.place})


def _iterate_run_events(listening: ResumableStream) -> Generator[Event]:
    for told in listening.items(patient=False):
        if told.name not in (OPENING_EVENT, GAP_EVENT, END_EVENT):
            yield Event.from_public_json(told.facts)
