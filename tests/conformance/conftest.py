"""The servers that everything here runs on: a fake, the Valkey we bring, the distribution's Redis, three partitions.

The full lane runs each case on all of them. The default lane runs each on one, chosen by a hash of the case's id, and
leaves the distribution's Redis out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from zlib import crc32

import fakeredis
import pytest
from conformance.stage import MakeStage, Stage
from conformance.timetable import Timetable
from support.lanes import is_full
from support.repeating_connection import Repeating
from support.servers import Server
from support.world import World, checked

from agentq.coordinator.storage.connection import Connection
from agentq.coordinator.storage.scripts import ScriptSet

FROM_PYPI = ("fakeredis", "valkey", "partitions")
"""`partitions` is Valkey with a namespace of three partitions."""
FLAVOURS = (*FROM_PYPI, "redis7")

Open = Callable[..., Connection]


def without_flags(name: str, text: str) -> str:
    """fakeredis hands a script to Lua as it is, to which the line of flags is no Lua."""
    return text.partition("\n")[2] if name == "whole" else text


@pytest.fixture(scope="session")
def scripts() -> dict[bool, ScriptSet]:
    """The scripts, for servers that know flags or do not. Assembling them takes longer than most tests."""
    return {True: ScriptSet(), False: ScriptSet(without_flags)}


@pytest.fixture(scope="session")
def fake() -> fakeredis.FakeRedis:
    return fakeredis.FakeRedis(server=fakeredis.FakeServer(server_type="redis", version=(7, 0)))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "flavour" in metafunc.fixturenames and is_full(metafunc.config):
        needs = {"redis7": pytest.mark.needs("redis-server")}
        params = [pytest.param(name, marks=needs.get(name, ())) for name in FLAVOURS]
        metafunc.parametrize("flavour", params, indirect=True, scope="function")


@pytest.fixture
def flavour(request: pytest.FixtureRequest) -> str:
    """The server of this case."""
    if hasattr(request, "param"):
        return str(request.param)
    chosen = FROM_PYPI[crc32(request.node.nodeid.encode()) % len(FROM_PYPI)]
    print(f"on {chosen}")
    return chosen


@pytest.fixture
def open_connection(flavour: str, request: pytest.FixtureRequest) -> Iterator[Open]:
    """Connects to each server in turn; afterwards the server is empty again, as for whoever comes next."""
    opened: list[Connection] = []

    def connect(kind: type[Connection] = Connection) -> Connection:
        if flavour == "fakeredis":
            opened.append(kind("redis://fake", client=request.getfixturevalue("fake")))
        else:
            server: Server = request.getfixturevalue("redis7" if flavour == "redis7" else "valkey")
            opened.append(kind(server.url))
        return opened[-1]

    yield connect
    for connection in opened:
        connection.command("FLUSHDB")
        connection.close()


@pytest.fixture
def make_world(flavour: str, open_connection: Open, scripts: dict[bool, ScriptSet]) -> Iterator[Callable[..., World]]:
    """Makes worlds on each server in turn; all invariants are checked at their end."""
    options = {"partitions": 3 if flavour == "partitions" else 1, "scripts": scripts[flavour != "fakeredis"]}
    with ExitStack() as worlds:
        yield lambda kind=Connection: worlds.enter_context(checked(open_connection(kind), **options))


@pytest.fixture
def make_stage(world: World) -> MakeStage:
    """Makes stages: a run in a world, with those around it."""

    def make(**options: object) -> Stage:
        return Stage(world, **options)  # type: ignore[arg-type]

    return make


@pytest.fixture
def repeating_world(make_world: Callable[..., World]) -> World:
    """A world in which every reply is lost once, and everything sent again."""
    return make_world(Repeating)


@pytest.fixture
def timetable(world: World) -> Timetable:
    """The schedules of a world."""
    return Timetable(world)
