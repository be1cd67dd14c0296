"""A coordinator, reached over HTTP, as what a client works with. Nothing of it is imported where Redis is used."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from agentq.coordinator import tracing
from agentq.coordinator.errors import Invalid
from agentq.coordinator.events import BEGINNING, Event
from agentq.coordinator.identity import is_run_id, new_nonce
from agentq.coordinator.life import Run
from agentq.coordinator.lifecycle import State
from agentq.coordinator.limits import ARGUMENTS_BYTES, ITEMS, LIST_A_CALL, SUBMIT_A_CALL
from agentq.coordinator.logs import LogEntry
from agentq.coordinator.queue import Receipt
from agentq.coordinator.records import Filter
from agentq.coordinator.run import RunSpec
from agentq.sdk.endings import Endings
from agentq.sdk.following import Placed
from agentq.sdk.remote.administration import Administration
from agentq.sdk.remote.faults import refused
from agentq.sdk.remote.listening import END, GAP, OPENING, Listening
from agentq.sdk.remote.sessions import Sessions
from agentq.sdk.remote.watching import Watching
from agentq.sdk.remote.wire import Wire
from agentq.sdk.streaming import Stream

A_MESSAGE_BYTES = 4 << 20
"""Of many runs, so many bytes go in one request, and one run at the least."""
ENTRIES_A_READ = 500


class Remote:
    """One coordinator, reached by one process."""

    def __init__(self, url: str, token: str | Path | None = None, *, home: str = "") -> None:
        self._wire = Wire(url, token, home)
        self._runs = Watching(self._wire)
        self.endings = Endings(self._runs)
        self.sessions = Sessions(self._wire)
        self.administration = Administration(self._wire)

    # ---- submitting

    def submitter(self, template: RunSpec) -> _Calls:
        return _Calls(self, template)

    def submit(self, spec: RunSpec, *, run_id: str | None = None, durable: bool = False) -> Receipt:
        return self.submit_text(_text(spec), run_id=run_id, durable=durable)

    def submit_many(self, specs: Iterable[RunSpec]) -> list[Receipt]:
        return self.submit_texts(map(_text, specs))

    def submit_text(self, text: str, *, run_id: str | None = None, durable: bool = False) -> Receipt:
        """Submit one run, given as JSON."""
        query = {"durable": "true" if durable else None, "id": run_id}
        key = _key() if run_id is None else None
        with tracing.sending() as (trace, tell):
            told = self._wire.post("/runs", text.encode(), key=key, query=query, trace=trace)
            tell(told["id"], 1)
        return Receipt(told["id"], told["created"], notes=tuple(told.get("notes", ())))

    def submit_texts(self, texts: Iterable[str]) -> list[Receipt]:
        """Submit many, each request with a key of its own."""
        receipts: list[Receipt] = []
        for message in _messages(texts):
            body = f'{{"runs":[{",".join(message)}]}}'.encode()
            with tracing.sending() as (trace, tell):
                told = self._wire.post("/runs", body, key=_key(), trace=trace)
                tell("", len(told["runs"]))
            first, *others = map(_receipt, told["runs"])
            receipts += [first._replace(notes=tuple(told.get("notes", ()))), *others]
        return receipts

    # ---- what is said of runs

    def find(self, text: str | None, *, live: bool = False) -> str:
        if text is not None and is_run_id(text):
            return text
        found = self._wire.get("/records/find", {"run": text, "live": "true" if live else None})
        return str(found["id"])

    def get(self, run_id: str, *, given_to: str | None = None) -> Run:
        return self._runs.get(run_id, given_to=given_to)

    def matching(self, which: Filter) -> Iterator[str]:
        asked = {"state": ",".join(which.states), "queue": which.queue, "plan": which.plan, "limit": LIST_A_CALL}
        cursor: str | None = ""
        while cursor is not None:
            page = self._wire.get("/runs", {**asked, "cursor": cursor or None})
            yield from (str(run["id"]) for run in page["runs"])
            cursor = page["next"]

    def cancel(self, run_id: str, reason: str) -> State:
        return self._verb(run_id, "cancel", {"reason": reason})

    def signal(self, run_id: str, name: str, data: JsonValue, *, by: str) -> State:  # noqa: ARG002 - the token tells
        return self._verb(run_id, "signal", {"name": name, "data": data})

    def approve(self, run_id: str, comment: str, *, by: str) -> State:  # noqa: ARG002
        return self._verb(run_id, "approve", {"comment": comment})

    def deny(self, run_id: str, comment: str, *, by: str) -> State:  # noqa: ARG002
        return self._verb(run_id, "deny", {"comment": comment})

    def wake(self, run_id: str) -> State:
        return self._verb(run_id, "wake")

    def requeue(self, run_id: str) -> State:
        return self._verb(run_id, "retry")

    def _verb(self, run_id: str, verb: str, body: object = None) -> State:
        return State(self._wire.post(f"/runs/{run_id}/{verb}", body, key=_key())["state"])

    # ---- what it tells

    def logs(self, run_id: str, after: str, *, follow: bool) -> Stream[LogEntry]:
        path = f"/runs/{run_id}/logs"
        if not follow:
            return Stream(self._log(path, after))
        listening = Listening(self._wire, path, {"follow": "true"}, last=None if after == BEGINNING else after)
        return Stream(_entries(listening), listening.interrupt)

    def _log(self, path: str, after: str) -> Generator[LogEntry]:
        while True:
            page = self._wire.get(path, {"after": after, "limit": ENTRIES_A_READ})
            yield from map(_entry, page["entries"])
            after = page["next"]
            if len(page["entries"]) < ENTRIES_A_READ:
                return

    def events(self, after: str | None, *, follow: bool) -> Stream[Placed]:
        query = {"after": after, "follow": None if follow else "false"}
        listening = Listening(self._wire, "/events", query)
        return Stream(_events(listening), listening.interrupt)

    def events_of(self, run_id: str, after: str | None, *, follow: bool) -> Stream[Event]:
        query = {"follow": None if follow else "false"}
        listening = Listening(self._wire, f"/runs/{run_id}/events", query, last=after)
        return Stream(_events_of(listening), listening.interrupt)

    def close(self) -> None:
        self.endings.close()


class _Calls:
    """Submits calls of one function."""

    def __init__(self, remote: Remote, template: RunSpec) -> None:
        self._remote = remote
        self._before = _text(template)[:-1]

    def submit(self, arguments: str, *, durable: bool = False) -> Receipt:
        return self._remote.submit_text(self._text(arguments), durable=durable)

    def submit_many(self, arguments: Sequence[str]) -> list[Receipt]:
        return self._remote.submit_texts(list(map(self._text, arguments)))

    def _text(self, arguments: str) -> str:
        if len(arguments) > ARGUMENTS_BYTES // 4 and len(arguments.encode()) > ARGUMENTS_BYTES:
            raise Invalid(
                f"The JSON of the arguments has {len(arguments.encode())} bytes; {ARGUMENTS_BYTES} is the most. "
                "Pass large input as a file."
            )
        return f'{self._before},"{"kwargs" if arguments.startswith("{") else "args"}":{arguments}}}'


def _text(spec: RunSpec) -> str:
    return spec.model_dump_json(exclude_unset=True, by_alias=True)


def _key() -> str:
    """What the server knows a request by when it is sent again."""
    return f"{new_nonce()}{new_nonce()}"


def _messages(texts: Iterable[str]) -> Iterator[list[str]]:
    rest = iter(texts)
    message: list[str] = []
    size = items = 0
    for text in rest:
        more = text.count(",") + 2 * text.count(":") + 1  # at the most: some may be within texts
        size, items = size + len(text), items + more
        if message and (len(message) == SUBMIT_A_CALL or size > A_MESSAGE_BYTES or items > ITEMS):
            yield message
            message, size, items = [], len(text), more
        message.append(text)
    if message:
        yield message


def _receipt(told: dict[str, Any]) -> Receipt:
    return Receipt(told["id"], told["created"], refused(told["refused"]) if "refused" in told else None)


def _entry(told: dict[str, Any]) -> LogEntry:
    return LogEntry.model_validate({**told, "at": told["from_byte"]})


def _entries(listening: Listening) -> Generator[LogEntry]:
    for told in listening.told(patient=False):
        if told.name not in (OPENING, END):
            yield _entry(told.facts)


def _events(listening: Listening) -> Generator[Placed]:
    for told in listening.told(patient=False):
        if told.name not in (OPENING, GAP, END):
            yield Placed.model_validate({**_facts(told.facts), "place": told.place})


def _events_of(listening: Listening) -> Generator[Event]:
    for told in listening.told(patient=False):
        if told.name not in (OPENING, GAP, END):
            yield Event.model_validate(_facts(told.facts))


def _facts(told: dict[str, Any]) -> dict[str, Any]:
    return {**told, "worker": told["worker"] or ""}
