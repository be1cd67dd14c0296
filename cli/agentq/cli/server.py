"""Which server a command works with: the one that is set, or the one that agentq brings."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from agentq.coordinator import embedded, tracing
from agentq.coordinator.errors import Unreachable
from agentq.coordinator.queue import Queue
from agentq.coordinator.settings import Layered, Settings, layered

if TYPE_CHECKING:
    from agentq.coordinator.records import Records
    from agentq.coordinator.store import Store


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

    def find(self, ids: list[str]) -> list[str]:
        """Whole ids for what may be only their beginnings."""
        return [self.records.find(text) for text in ids]


def settings_of(context: typer.Context) -> Layered:
    """The settings, with the flags that stand before the command."""
    return layered(context.find_root().obj or {})


def home_of(settings: Settings) -> Path:
    """The folder for what agentq keeps on this machine."""
    return Path(settings.home).expanduser().absolute() if settings.home else embedded.home()


def brought(settings: Settings) -> embedded.Embedded:
    """The server that agentq brings, whether it runs or not."""
    return embedded.Embedded(home_of(settings) / "server")


def reach(context: typer.Context, *, start: bool = False) -> Server:
    """The server, to say verbs to."""
    settings = located(context, start=start)
    if start and tracing.wanted():
        context.call_on_close(tracing.export("agentq"))
    return Server(settings, Queue.open(settings, bootstrap=start))


def located(context: typer.Context, *, start: bool = False) -> Settings:
    """The settings with an address: where none is set, of the server that agentq brings, started by those who may."""
    if "AGENTQ_DOOR" in os.environ:
        from agentq.cli.door import refuse

        refuse(context)
    settings = settings_of(context).settings
    if settings.url:
        return settings
    return settings.model_copy(update={"url": _embedded(brought(settings), start)})


def _embedded(server: embedded.Embedded, start: bool) -> str:
    found = server.find()
    if found is None and start:
        found = server.start()
        note(f"started a server of its own in {server.folder}; `agentq down` stops it.")
    if found is None:
        raise Unreachable("No server runs; start one with `agentq up`, or say where one is with --url or AGENTQ_URL.")
    return found


def note(text: str) -> None:
    """Something to know that is not what was asked for."""
    print(f"agentq: {text}", file=sys.stderr)
