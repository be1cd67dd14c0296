"""Which server a command works with: the one that is set, or the one that agentq brings."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from agentq.cli.render import clean
from agentq.coordinator import tracing
from agentq.coordinator.config.settings import LayeredSettings, Settings, load_settings
from agentq.coordinator.errors import Invalid, NotAllowed, Unreachable
from agentq.coordinator.runs.verbs import RunVerbs
from agentq.coordinator.storage import embedded
from agentq.coordinator.storage.keys import Keyspace
from agentq.coordinator.storage.url import is_coordinator_url, redact_url

if TYPE_CHECKING:
    from agentq.cli.agent_socket import AgentSocketBackend
    from agentq.coordinator.id_lookup import IdLookup
    from agentq.coordinator.runs.queries import RunQueries
    from agentq.coordinator.storage.store import NamespaceStore
    from agentq.sdk.backend import Backend
    from agentq.sdk.redis_backend import RedisBackend


PRINTED_NOTES_KEY = "agentq.said"
"""Under which name a command keeps what it has said once."""


@dataclass(frozen=True)
class ServerConnection:
    """A server, reached: its settings, with the address filled in, and its verbs."""

    settings: Settings
    queue: RunVerbs

    @property
    def store(self) -> NamespaceStore:
        return self.queue.store

    @cached_property
    def backend(self) -> RedisBackend:
        """The same server, as a backend."""
        from agentq.sdk.redis_backend import RedisBackend

        return RedisBackend(self.queue, self.settings)

    @cached_property
    def records(self) -> RunQueries:
        from agentq.coordinator.runs.queries import RunQueries

        return RunQueries(self.store)

    @cached_property
    def references(self) -> IdLookup:
        from agentq.coordinator.id_lookup import IdLookup

        return IdLookup(self.records)

    def find(self, text: str | None, *, live: bool = False) -> str:
        """The id of the run that was typed, or of the newest."""
        return self.references.newest(live=live) if text is None else self.references.run(text)


def read_settings(context: typer.Context) -> LayeredSettings:
    """The settings, with the flags that stand before the command. Says once what files set that does not count."""
    root = context.find_root()
    found = load_settings(root.obj or {})
    printed = root.meta.setdefault(PRINTED_NOTES_KEY, set())
    for source in dict.fromkeys(each.source for each in found.ignored):
        names = [each.name for each in found.ignored if each.source == source and each.name]
        what = f"{', '.join(names)} in {source}" if names else source
        _note_once(printed, f"{what} {'do' if names[1:] else 'does'} not count; `agentq config` says why.")
    return found


def note_server_source(context: typer.Context, found: LayeredSettings) -> None:
    """Say once which file set the server, if a file did: tokens and work go there."""
    if found.sources["url"].startswith("/"):
        printed = context.find_root().meta.setdefault(PRINTED_NOTES_KEY, set())
        _note_once(printed, f"the server is {redact_url(found.settings.url)}, set in {found.sources['url']}.")


def _note_once(printed: set[str], sentence: str) -> None:
    if sentence not in printed:
        printed.add(sentence)
        print_note(sentence)


def home_folder(settings: Settings) -> Path:
    """The folder for what agentq keeps on this machine."""
    return embedded.data_folder(settings.home)


def embedded_server(settings: Settings) -> embedded.EmbeddedServer:
    """The server that agentq brings, whether it runs or not."""
    return embedded.EmbeddedServer(home_folder(settings) / "server")


def connect_backend(context: typer.Context, *, start: bool = False) -> Backend:
    """The backend of a command: the agent's socket in an agent's run, else the coordinator or the Redis that the
    settings name, else the server that agentq brings, which `start` starts."""
    backend = _find_backend(context, start)
    context.call_on_close(backend.close)
    return backend


def _find_backend(context: typer.Context, start: bool) -> Backend:
    if (in_run := _find_agent_socket(context)) is not None:
        return in_run
    found = read_settings(context)
    if is_coordinator_url(found.settings.url):
        from agentq.sdk.http_backend import HttpBackend

        if namespace := (context.find_root().obj or {}).get("namespace"):
            Keyspace(namespace)  # refuses what is no name
            raise Invalid("A coordinator serves one namespace, which it knows by itself; leave --namespace out.")
        if start:
            note_server_source(context, found)
        return HttpBackend(found.settings.url.strip(), home=found.settings.home)
    return connect_server(context, start=start).backend


def _find_agent_socket(context: typer.Context) -> AgentSocketBackend | None:
    if "AGENTQ_AGENT_SOCKET" not in os.environ:
        return None
    from agentq.cli.agent_socket import AgentSocketBackend

    return AgentSocketBackend.here(context)


def refuse_in_agent_run(context: typer.Context) -> None:
    """Refuse a command that an agent may not call, if this is an agent's run."""
    if _find_agent_socket(context) is not None:
        from agentq.cli.agent_socket import REFUSAL

        raise NotAllowed(REFUSAL)


def connect_server(context: typer.Context, *, start: bool = False) -> ServerConnection:
    """The server, to say verbs to."""
    settings = locate_server(context, start=start)
    if start and tracing.is_export_configured():
        context.call_on_close(tracing.start_export("agentq"))
    return ServerConnection(settings, RunVerbs.open(settings, client_name="agentq:cli", bootstrap=start))


def locate_server(context: typer.Context, *, start: bool = False) -> Settings:
    """The settings with an address: where none is set, of the server that agentq brings, started by those who may."""
    refuse_in_agent_run(context)
    _used_servers.clear()
    found = read_settings(context)
    settings = found.settings
    if is_coordinator_url(settings.url):
        raise Invalid(
            f"`{context.command_path}` works on Redis itself, and {redact_url(settings.url)} is a coordinator; call it "
            "where the coordinator runs, with the address of its Redis: --url redis://…"
        )
    if settings.url:
        if start:
            note_server_source(context, found)
        return settings
    return settings.model_copy(update={"url": _find_embedded(embedded_server(settings), start)})


def guard_embedded_server() -> None:
    """If this command works with the server that agentq brings, start that again whenever it dies."""
    for own in _used_servers:
        from agentq.cli.server_guard import start_guard

        start_guard(own, print_note)


_used_servers: list[embedded.EmbeddedServer] = []
"""The server that agentq brings, if this command works with it."""


def describe_server_death() -> str:
    """Why the server that agentq brought is gone, if this command worked with it and it has died; else nothing."""
    died = next((server for server in _used_servers if server.was_killed()), None)
    return f" The server that agentq brought has died: {died.last_words()}; its log is {died.log}." if died else ""


def _find_embedded(server: embedded.EmbeddedServer, start: bool) -> str:
    _used_servers[:] = [server]
    found = server.find()
    if found is None and start:
        found = server.start()
        print_note(f"started a server of its own in {server.folder}; `agentq down` stops it.")
    if found is None:
        raise Unreachable("No server runs; start one with `agentq up`, or say where one is with --url or AGENTQ_URL.")
    return found


def print_note(text: str) -> None:
    """Something to know that is not what was asked for."""
    print(f"agentq: {clean(text)}", file=sys.stderr)
