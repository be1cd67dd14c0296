"""The command line, called in this process: fast, and on a namespace whose every key can be looked at."""

from __future__ import annotations

import io
import os
import sys
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from support.coordinator_thread import CoordinatorThread
from support.lanes import is_full
from support.servers import Server
from support.world import World

from agentq.cli.main import main
from agentq.coordinator.config.settings import Settings
from agentq.coordinator.runs.verbs import Claim
from agentq.sdk.backend import Backend
from agentq.sdk.http_backend import HttpBackend
from agentq.sdk.redis_backend import RedisBackend


class Answer(NamedTuple):
    """What a command said."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


HERE = Path(__file__).parent
BACKENDS = ("redis", "http")
HTTP_SHARE = 8
"""The default lane runs one in so many of the cases over HTTP, by a hash of their names."""
TOKEN = "a-token-of-this-machine"

Cli = Callable[..., Answer]
Act = Callable[[Claim], object]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "redis_only(why): of a command that works on Redis itself")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Each case runs on each backend in the full lane; in the default lane all run on Redis and some over HTTP."""

    def runs(item: pytest.Item) -> bool:
        case = getattr(item, "callspec", None)
        if case is None or case.params.get("backend") != "http" or HERE not in item.path.parents:
            return True
        chosen = is_full(config) or zlib.crc32(item.nodeid.encode()) % HTTP_SHARE == 0
        return chosen and item.get_closest_marker("redis_only") is None

    left_out = [item for item in items if not runs(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if runs(item)]


@pytest.fixture
def real(make_world: Callable[..., World]) -> World:
    """A namespace in real time, as commands see it."""
    return make_world(real_time=True)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user with a home and a folder of their own, who has set nothing."""
    for name in [name for name in os.environ if name.startswith(("AGENTQ_", "XDG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    """How commands reach the server."""
    return str(request.param)


@pytest.fixture
def address(backend: str, here: Path, real: World, valkey: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address by which commands reach the namespace `real`, and in the environment what goes with it."""
    assert Path.cwd() == here
    namespace = real.store.keyspace.namespace
    if backend == "redis":
        monkeypatch.setenv("AGENTQ_NAMESPACE", namespace)
        yield valkey.url
        return
    monkeypatch.setenv("AGENTQ_TOKEN", TOKEN)
    real.store.guard()  # writes the marker of the namespace, which the coordinator would write at some time
    settings = Settings(url=valkey.url, namespace=namespace, partitions=real.settings.partitions)
    with CoordinatorThread(settings, TOKEN) as coordinator:
        yield coordinator.url


@pytest.fixture
def cli(address: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Calls `agentq` in the namespace `real`."""
    monkeypatch.setenv("AGENTQ_URL", address)

    def call(*argv: str, stdin: str = "") -> Answer:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        capsys.readouterr()
        code = main(argv)
        said = capsys.readouterr()
        return Answer(code, said.out, said.err)

    return call


@pytest.fixture
def reached(address: str, backend: str, real: World) -> Iterator[Backend]:
    """The namespace `real`, reached as commands reach it."""
    found = HttpBackend(address, TOKEN) if backend == "http" else RedisBackend(real.queue, real.settings)
    yield found
    if backend == "http":
        found.close()


def sentence(answer: Answer) -> str:
    """The one sentence on stderr that a command refuses with; there is nothing else."""
    assert answer.out == ""
    assert answer.err.startswith("agentq: ")
    assert answer.err.count("\n") == 1
    assert "Traceback" not in answer.err
    return answer.err.removeprefix("agentq: ").rstrip("\n")


@pytest.fixture
def background(real: World) -> Iterator[Callable[[Act], None]]:
    """A worker in a thread that does one thing with each run that it starts."""
    stopped = threading.Event()
    threads: list[threading.Thread] = []

    def work(act: Act) -> None:
        lease = real.worker("hand", "default", slots=10, labels={"agent.claude": "ready"})

        def loop() -> None:
            while not stopped.wait(0.01):
                for claim in lease.claim(10):
                    real.queue.start([claim])
                    act(claim)

        threads.append(threading.Thread(target=loop))
        threads[0].start()

    yield work
    stopped.set()
    for thread in threads:
        thread.join()
