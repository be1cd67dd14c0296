"""The servers that everything here runs on: a fake, the Valkey we bring, the distribution's Redis, three partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import fakeredis
import pytest
from conformance.stage import Stage
from world import World

from agentq.coordinator.connection import Connection
from agentq.coordinator.scripts import Patch, ScriptSet

FLAVOURS = ("fakeredis", "valkey", "redis7", "partitions")
"""`partitions` is Valkey with a namespace of three partitions."""

Shared = Callable[[str], tuple[Connection, ScriptSet]]
MakeStage = Callable[..., Stage]


def without_flags(name: str, text: str) -> str:
    """fakeredis hands a script to Lua as it is, to which the line of flags is no Lua."""
    return text.partition("\n")[2] if name == "whole" else text


@pytest.fixture(scope="session")
def shared(request: pytest.FixtureRequest) -> Iterator[Shared]:
    """The connection to each server, and the scripts for it: made once, since that takes longer than most tests."""
    made: dict[str, tuple[Connection, ScriptSet]] = {}

    def make(flavour: str) -> tuple[Connection, ScriptSet]:
        if flavour not in made:
            patch: Patch | None = None
            if flavour == "fakeredis":
                patch = without_flags
                client = fakeredis.FakeRedis(server=fakeredis.FakeServer(server_type="redis", version=(7, 0)))
                connection = Connection("redis://fake", client=client)
            else:
                server = request.getfixturevalue("redis7" if flavour == "redis7" else "valkey")
                connection = Connection(server.url)
            made[flavour] = connection, ScriptSet(patch)
        return made[flavour]

    yield make
    for connection, _ in made.values():
        connection.close()


@pytest.fixture(params=FLAVOURS)
def flavour(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def world(flavour: str, shared: Shared) -> Iterator[World]:
    """A namespace on each server in turn; all invariants are checked at its end."""
    connection, scripts = shared(flavour)
    world = World(connection, partitions=3 if flavour == "partitions" else 1, scripts=scripts)
    yield world
    world.outcomes.close()
    world.check()
    connection.command("FLUSHDB")


@pytest.fixture
def make_stage(world: World) -> MakeStage:
    """Makes stages: a run in a world, with those around it."""

    def make(**options: object) -> Stage:
        return Stage(world, **options)  # type: ignore[arg-type]

    return make
