"""Servers and worlds for all tests. After every test that used a world, all invariants must hold."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from support.crew import Crew
from support.dialect_runner import Parties
from support.http_servers import Serving
from support.own_process import adopt_no_more, is_alone
from support.requirements import binary
from support.servers import Server, valkey_binary
from support.world import World, checked

from agentq.coordinator.storage.connection import Connection

MakeWorld = Callable[..., World]

pytest_plugins = ("support.golden_files", "support.lanes", "support.temporary_root", "simulation.seeds")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("chaos")
    group.addoption(
        "--chaos-seed", type=int, default=None, help="replay the faults of this seed, and test nothing else"
    )
    group.addoption("--chaos-seeds", type=int, default=1, help="how many seeds of faults to try")


def pytest_configure() -> None:
    """Processes of tests that `nohup` or a shell's `&` started do not ignore interrupts and hangups either.

    A signal that is ignored stays so in every child; one that has a handler begins anew there.
    """
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is collected stays to the end: to look through it for garbage again and again takes half of the time."""
    gc.disable()
    yield
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def subreaper_reset() -> Iterator[None]:
    """Undoes what a worker's code that ran in this process made of it."""
    yield
    if not is_alone():
        adopt_no_more()


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder whose name is short enough for a unix socket."""
    path = Path(tempfile.mkdtemp(prefix="aq"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


def _server(binary: str) -> Iterator[Server]:
    path = Path(tempfile.mkdtemp(prefix="aq"))
    server = Server(binary, path, "--enable-debug-command", "yes").start()
    yield server
    server.stop()
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="session")
def valkey() -> Iterator[Server]:
    """The Valkey that agentq brings, without persistence."""
    yield from _server(valkey_binary())


@pytest.fixture(scope="session")
def redis7() -> Iterator[Server]:
    """The machine's redis-server."""
    yield from _server(binary("redis"))


@pytest.fixture
def durable(folder: Path) -> Iterator[Server]:
    """A server of the test's own that syncs every write, to be killed, filled or watched."""
    server = Server(valkey_binary(), folder / "server", "--appendonly", "yes", "--appendfsync", "always").start()
    yield server
    server.stop()


@pytest.fixture
def connection(valkey: Server) -> Iterator[Connection]:
    connection = Connection(valkey.url)
    yield connection
    connection.close()


@pytest.fixture
def make_world(connection: Connection) -> Iterator[MakeWorld]:
    """Makes worlds; each is checked at the end of the test."""
    with ExitStack() as worlds:
        yield lambda **options: worlds.enter_context(checked(connection, **options))


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    """A namespace whose clock the test moves."""
    return make_world()


@pytest.fixture
def valkey_url(valkey: Server) -> str:
    """For a program that is given an address."""
    return valkey.url


@pytest.fixture
def fresh_home(folder: Path) -> dict[str, str]:
    """The environment of a user who has set nothing and has a home of their own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AGENTQ_")}
    return {**kept, "HOME": str(folder), "XDG_DATA_HOME": str(folder / "data")}


@pytest.fixture
def make_crew(folder: Path) -> Iterator[Callable[..., Crew]]:
    """Makes crews; their workers end with the test."""
    crews: list[Crew] = []

    def make(server: Server, **settings: object) -> Crew:
        crews.append(Crew(server, folder, **settings))
        return crews[-1]

    yield make
    for crew in crews:
        crew.close()


@pytest.fixture
def make_serving(folder: Path) -> Iterator[Callable[..., Serving]]:
    """Makes HTTP servers that run; they end with the test, and nothing unforeseen may have happened in them."""
    made: list[Serving] = []

    def make(store: Server, *options: str, **settings: Any) -> Serving:
        made.append(Serving(store, folder, *options, **settings))
        return made[-1].start()

    yield make
    for serving in made:
        serving.stop()
    for serving in made:
        serving.check()


@pytest.fixture
def parties(serving: Serving) -> Iterator[Parties]:
    """Foreign runners and clients."""
    parties = Parties(serving)
    yield parties
    parties.close()


@pytest.fixture(scope="module")
def serving(valkey: Server) -> Iterator[Serving]:
    """One HTTP server for all tests of a module, in a namespace of its own."""
    path = Path(tempfile.mkdtemp(prefix="aq"))
    serving = Serving(valkey, path).start()
    yield serving
    serving.stop()
    serving.check()
    shutil.rmtree(path, ignore_errors=True)
