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
from agentq.coordinator import embedded, tracing
from agentq.coordinator.errors import Unreachable
from agentq.coordinator.queue import Queue
from agentq.coordinator.settings import Layered, Settings, layered
from agentq.coordinator.url import display

if TYPE_CHECKING:
    from agentq.coordinator.records import Records
    from agentq.coordinator.references import References
    from agentq.coordinator.store import Store


SAID = "agentq.said"
"""Under which name a command keeps what it has said once."""


@dataclass(frozen=True)
class Server:
    """A server, reached: its settings, with the address filled in, and its verbs."""

    settings: Settings
    queue: Queue

    @property
    def store(self) -> Store:
        return self.queue.store

    @cached_property
    def records(self) -> Records:
        from agentq.coordinator.records import Records

        return Records(self.store)

    @cached_property
    def references(self) -> References:
        from agentq.coordinator.references import References

        return References(self.records)

    def find(self, text: str | None, *, live: bool = False) -> str:
        """The id of the run that was typed, or of the newest."""
        return self.references.newest(live=live) if text is None else self.references.run(text)


def settings_of(context: typer.Context) -> Layered:
    """The settings, with the flags that stand before the command. Says once what files set that does not count."""
    root = context.find_root()
    found = layered(root.obj or {})
    said = root.meta.setdefault(SAID, set())
    for source in dict.fromkeys(each.source for each in found.ignored):
        names = [each.name for each in found.ignored if each.source == source and each.name]
        what = f"{', '.join(names)} in {source}" if names else source
        _say_once(said, f"{what} {'do' if names[1:] else 'does'} not count; `agentq config` says why.")
    return found


def say_server(context: typer.Context, found: Layered) -> None:
    """Say once which file set the server, if a file did: tokens and work go there."""
    if found.sources["url"].startswith("/"):
        said = context.find_root().meta.setdefault(SAID, set())
        _say_once(said, f"the server is {display(found.settings.url)}, set in {found.sources['url']}.")


def _say_once(said: set[str], sentence: str) -> None:
    if sentence not in said:
        said.add(sentence)
        note(sentence)


def home_of(settings: Settings) -> Path:
    """The folder for what agentq keeps on this machine."""
    return embedded.home(settings.home)


def brought(settings: Settings) -> embedded.Embedded:
    """The server that agentq brings, whether it runs or not."""
    return embedded.Embedded(home_of(settings) / "server")


def reach(context: typer.Context, *, start: bool = False) -> Server:
    """The server, to say verbs to."""
    settings = located(context, start=start)
    if start and tracing.wanted():
        context.call_on_close(tracing.export("agentq"))
    return Server(settings, Queue.open(settings, client_name="agentq:cli", bootstrap=start))


def located(context: typer.Context, *, start: bool = False) -> Settings:
    """The settings with an address: where none is set, of the server that agentq brings, started by those who may."""
    if "AGENTQ_DOOR" in os.environ:
        from agentq.cli.door import refuse

        refuse(context)
    _used.clear()
    found = settings_of(context)
    settings = found.settings
    if settings.url:
        if start:
            say_server(context, found)
        return settings
    return settings.model_copy(update={"url": _embedded(brought(settings), start)})


def guard_own() -> None:
    """If this command works with the server that agentq brings, start that again whenever it dies."""
    for own in _used:
        from agentq.cli.server_guard import guard

        guard(own, note)


_used: list[embedded.Embedded] = []
"""The server that agentq brings, if this command works with it."""


def death_of_own() -> str:
    """Why the server that agentq brought is gone, if this command worked with it and it has died; else nothing."""
    died = next((server for server in _used if server.was_killed()), None)
    return f" The server that agentq brought has died: {died.last_words()}; its log is {died.log}." if died else ""


def _embedded(server: embedded.Embedded, start: bool) -> str:
    _used[:] = [server]
    found = server.find()
    if found is None and start:
        found = server.start()
        note(f"started a server of its own in {server.folder}; `agentq down` stops it.")
    if found is None:
        raise Unreachable("No server runs; start one with `agentq up`, or say where one is with --url or AGENTQ_URL.")
    return found


def note(text: str) -> None:
    """Something to know that is not what was asked for."""
    print(f"agentq: {clean(text)}", file=sys.stderr)
