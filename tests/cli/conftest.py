"""The command line, called in this process: fast, and on a namespace whose every key can be looked at."""

from __future__ import annotations

import io
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from support.servers import Server
from support.world import World

from agentq.cli.main import main
from agentq.coordinator.runs.verbs import Claim


class Answer(NamedTuple):
    """What a command said."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


Cli = Callable[..., Answer]
Act = Callable[[Claim], object]


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


@pytest.fixture
def cli(
    real: World, valkey: Server, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Cli:
    """Calls `agentq` in the namespace `real`."""
    assert Path.cwd() == here
    monkeypatch.setenv("AGENTQ_URL", valkey.url)
    monkeypatch.setenv("AGENTQ_NAMESPACE", real.store.keyspace.namespace)

    def call(*argv: str, stdin: str = "") -> Answer:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        capsys.readouterr()
        code = main(argv)
        said = capsys.readouterr()
        return Answer(code, said.out, said.err)

    return call


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
