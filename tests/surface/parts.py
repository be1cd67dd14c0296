"""The parts of the public surface that are read from tables and models, each as lines of text.

Names of modules and classes are left out where nobody outside sees them, so that moving one changes nothing here. So is
prose, but for what is prose to those who use it, such as help.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from json import dumps
from typing import Any, get_args

import typer
from pydantic import BaseModel
from support.generated_docs import every_command, help_of
from support.golden_files import outline

from agentq.cli import main
from agentq.coordinator import errors
from agentq.coordinator.config.server_settings import ServerSettings
from agentq.coordinator.config.settings import (
    NEARBY_SETTINGS,
    SERVER_TABLE,
    VARIABLE_PREFIX,
    WORKER_TABLE,
    Settings,
    WorkerSettings,
)
from agentq.coordinator.events.event_filter import EventFilter
from agentq.coordinator.events.stream import NOTICE_EVENTS, Event
from agentq.coordinator.model.agent_events import AnyAgentEvent
from agentq.coordinator.model.lifecycle import CLASS_BUDGETS, TRANSITIONS, OutcomeClass, State
from agentq.coordinator.storage.connection import Connection
from agentq.coordinator.storage.keys import CONSUMER_GROUP, KEY_KINDS
from agentq.coordinator.storage.scripts import SCRIPTS, ScriptHeader
from agentq.coordinator.storage.store import NamespaceStore
from agentq.coordinator.webhooks import delivery
from agentq.remote_worker import messages, permissions
from agentq.server.app import create_app, find_required_scope, list_routes
from agentq.server.events import sse_streams
from agentq.server.observe.metrics import list_metrics as metric_names
from agentq.worker.run_api.agent_requests import AgentRequest

ADDRESS = "redis://localhost"
"""Of no server that is asked for anything."""
REFUSED = re.compile("[45]..")


def titled(title: str, lines: Iterable[str]) -> Iterator[str]:
    yield from ("", f"# {title}", "", *lines)


# ---- commands


def commands() -> Iterator[str]:
    """The help of every command, those that have others below them included, and options that no help shows."""
    root = typer.main.get_command(main.commands)
    yield from titled(
        "agentq --help", typer.Context(root, info_name="agentq", terminal_width=100).get_help().split("\n")
    )
    for name, command in every_command():
        yield from titled(f"agentq {name} --help", help_of(name, command).split("\n"))
        hidden = [option for each in command.params if getattr(each, "hidden", False) for option in each.opts]
        yield from [f"  hidden: {', '.join(sorted(hidden))}"] if hidden else ()


# ---- the server


def openapi() -> Iterator[str]:
    """The document, in which a refusal that many routes have in common stands once."""
    document = create_app(Settings(url=ADDRESS)).openapi()
    operations = [operation for path in document["paths"].values() for operation in path.values()]
    written = Counter(
        (status, dumps(answer, sort_keys=True))
        for operation in operations
        for status, answer in operation["responses"].items()
        if REFUSED.fullmatch(status)
    )
    usual = {status: text for (status, text), times in sorted(written.items(), key=lambda each: each[1])}
    shared: dict[str, Any] = {}
    for operation in operations:
        responses = operation["responses"]
        as_usual = sorted(
            status for status in responses if usual.get(status) == dumps(responses[status], sort_keys=True)
        )
        shared |= {status: responses.pop(status) for status in as_usual}
        operation["usual refusals"] = " ".join(as_usual)
    return outline(document | {"usual refusals": shared})


def routes() -> Iterator[str]:
    """Every route in the order in which they are tried, which has meaning, with the scope that it takes."""
    for route in list_routes():
        allowed = find_required_scope(route)
        methods = ",".join(sorted(getattr(route, "methods", None) or ("WebSocket",)))
        yield f"{methods} {route.path}  {allowed.scope if allowed else 'open'}"


def metrics() -> Iterator[str]:
    found = metric_names(NamespaceStore(Connection(ADDRESS)))
    return (f"{name}  {' '.join(labels)}".rstrip() for name, (_, labels) in sorted(found.items()))


# ---- models


def fields(model: type[BaseModel]) -> dict[str, Any]:
    """What a model looks like in JSON, without prose and names of classes."""
    schema: dict[str, Any] = _bare(model.model_json_schema())
    return schema


def _bare(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_bare(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    # Names of fields are below `properties`, where `title` and `description` may be some of them.
    return {
        name: {field: _bare(each) for field, each in value.items()} if name == "properties" else _bare(value)
        for name, value in schema.items()
        if name not in ("title", "description") or not isinstance(value, str)
    }


def worker_frames() -> Iterator[str]:
    """The WebSocket of workers: every message, and the calls that one may make through it."""
    yield (
        f"path {messages.WORKER_PATH}, protocol {messages.PROTOCOL_VERSION}, at most "
        f"{messages.MESSAGE_BYTES} bytes a message"
    )
    for message in messages.MESSAGE_TYPES:
        yield from titled(f"message {message.model_fields['type'].default}", outline(fields(message)))
    yield from titled("kinds of refusals", sorted(messages.ERROR_CLASSES))
    yield from titled("closing codes", (str(code) for code in sorted(messages.CLOSE_REASONS)))
    calls = sorted(permissions.WORKER_SCRIPTS)
    yield from titled("calls of a worker", (f"{name}: {_taken(SCRIPTS[name].header)}" for name in calls))
    yield from titled("calls whose replies have runs", sorted(permissions.CLAIMING_SCRIPTS))
    patterns = permissions.ARGUMENT_PATTERNS.items()
    yield from titled("words of calls", sorted(f"{name}: {pattern.pattern}" for name, pattern in patterns))
    yield from titled("words of calls that are checked otherwise", sorted(permissions.ARGUMENT_CHECKS))


def run_requests() -> Iterator[str]:
    """The socket within a run: what its processes may ask there."""
    for request in get_args(get_args(AgentRequest)[0]):
        (verb,) = get_args(request.model_fields["verb"].annotation)
        yield from titled(f"ask {verb}", outline(fields(request)))


def events() -> Iterator[str]:
    """What events are called, what changes a run, and what agents are heard to do."""
    yield from titled("fields of an event", outline(fields(Event)))
    yield from titled("transitions, and the event of each", sorted(_arrows()))
    yield from titled("events of no run", sorted(NOTICE_EVENTS))
    yield from titled("filters", outline(fields(EventFilter)))
    yield from titled("types of webhooks' messages", ["agentq.EVENT", "run.EVENT", delivery.GAP_EVENT])
    yield from titled(
        "events of streams that are no events of runs", sorted((sse_streams.GAP_EVENT, sse_streams.END_EVENT))
    )
    yield from titled("states", State)
    yield from titled(
        "classes of outcomes, and what each is paid from", (f"{x}  {CLASS_BUDGETS.get(x, '-')}" for x in OutcomeClass)
    )
    for kind in get_args(get_args(AnyAgentEvent)[0]):
        yield from titled(f"told by agents: {kind.model_fields['type'].default}", outline(fields(kind)))


def _arrows() -> Iterator[str]:
    for row in TRANSITIONS:
        for source, target in row.arrows():
            yield f"{row.verb}: {source or '-'} -> {target}  {row.event}, by {row.who.name.lower()}"


# ---- what is kept


def scripts() -> Iterator[str]:
    """Every script: its arguments, rows and replies; and what the replies mean to callers."""
    for name in sorted(SCRIPTS):
        header = SCRIPTS[name].header
        yield from titled(name, [f"takes: {_taken(header)}"])
        yield f"answers: {header.reply}"
        yield f"verbs: {' '.join(sorted(header.verbs))}".rstrip()
        yield f"flags: {header.flags}".rstrip()
    words = sorted(f"{word}: exit code {kind.exit_code}" for word, (kind, _) in errors.REFUSALS.items())
    yield from titled("words of refusals", words)


def _taken(header: ScriptHeader) -> str:
    return " ".join(header.arguments) + (f" | rows of {' '.join(header.rows)}" if header.rows else "")


def keys() -> Iterator[str]:
    """Every key: its pattern, its type, how long it lives."""
    yield f"group: {CONSUMER_GROUP}"
    yield from (f"{key.pattern}  {key.type}  {key.lifetime}" for key in sorted(KEY_KINDS, key=lambda key: key.pattern))


def settings() -> Iterator[str]:
    """Every setting: its variable, where it may be set, what it may be, its default."""
    for table, model in (("", Settings), (WORKER_TABLE, WorkerSettings), (SERVER_TABLE, ServerSettings)):
        schema = fields(model)
        yield from titled(f"[{table}]" if table else "in no table", ())
        for name in sorted(schema["properties"]):
            place = f"{table}.{name}" if table else name
            about = schema["properties"][name] | ({"nearby": True} if place in NEARBY_SETTINGS else {})
            yield from outline({f"{VARIABLE_PREFIX}{place.replace('.', '_').upper()}": about})
        yield from outline({"defined below": schema.get("$defs", {})})
