"""Reads the server's name and version from INFO, and checks that it is supported."""

from __future__ import annotations

from typing import NamedTuple

from agentq.coordinator.errors import AgentqError, Incompatible, TryLater, Unreachable
from agentq.coordinator.storage.connection import Connection

MINIMUM_VERSIONS = {"Redis": (7, 0), "Valkey": (8, 0)}


class ServerVersion(NamedTuple):
    """The name and version of a server."""

    name: str
    text: str

    @property
    def least(self) -> str:
        """The oldest version of this server that will do."""
        return ".".join(map(str, MINIMUM_VERSIONS[self.name]))

    @property
    def is_supported(self) -> bool:
        number = tuple(int(part) for part in self.text.split(".")[:2] if part.isdecimal())
        return number >= MINIMUM_VERSIONS[self.name]


def parse_info(information: str) -> dict[str, str]:
    """The fields that a reply to INFO holds."""
    return dict(line.split(":", 1) for line in information.splitlines() if ":" in line)


def read_version(facts: dict[str, str]) -> ServerVersion | None:
    """The version that these fields name; None if they name none."""
    for name in ("Valkey", "Redis"):
        if text := facts.get(f"{name.lower()}_version"):
            return ServerVersion(name, text)
    return None


def refuse_old_server(connection: Connection) -> None:
    """Refuse a server that is too old. One whose user may not ask INFO is not checked; `agentq doctor` says so."""
    try:
        found = read_version(parse_info(connection.command("INFO", "server")))
    except (Unreachable, TryLater):
        raise
    except AgentqError:
        return
    if found is not None and not found.is_supported:
        raise Incompatible(f"The server is {found.name} {found.text}, which is too old; upgrade it to {found.least}.")
