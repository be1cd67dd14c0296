"""Users of Redis who may do no more than their part, with the rights that deploy/README.md names."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from cli.conftest import Cli, sentence
from support.servers import Server
from support.world import World, checked

from agentq.coordinator.errors import NotAllowed
from agentq.coordinator.runs.logs import LogChunk
from agentq.coordinator.storage.connection import Connection

DEPLOY = Path(__file__).parents[2] / "deploy" / "README.md"
FLAVOURS = ["valkey", pytest.param("redis7", marks=pytest.mark.needs("redis-server"))]


@pytest.fixture(params=FLAVOURS)
def server(request: pytest.FixtureRequest) -> Server:
    found: Server = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def world(server: Server) -> Iterator[World]:
    """In real time, and on each kind of server."""
    with closing(Connection(server.url)) as connection, checked(connection, real_time=True) as world:
        yield world


def login(world: World, server: Server, name: str) -> list[str]:
    """The words with which a command is this user, whose rights are those of the docs."""
    (line,) = re.findall(rf"^ACL SETUSER {name} (.*)$", DEPLOY.read_text(), re.MULTILINE)
    rights = line.replace("{default}", f"{{{world.store.keyspace.namespace}}}").replace(">PASSWORD", ">pw")
    world.store.connection.command("ACL", "SETUSER", name, "reset", *rights.split())
    namespace = world.store.keyspace.namespace
    return ["--url", f"{server.url}?username={name}&password=pw", "--namespace", namespace]


def test_a_user_who_may_only_read_sees_everything_and_changes_nothing(world: World, server: Server, cli: Cli) -> None:
    claim = world.held(started=True)
    world.queue.log(claim, 1, [LogChunk("out", "hello\n")])
    waiting = world.submit(queue="later")
    reader = login(world, server, "agentq-reader")

    with world.unchanged():
        world.store.connection.command("SCRIPT", "FLUSH")  # who may only read sends a script that is not there yet
        for argv, says in (
            (["ls"], waiting), (["show", claim.id], claim.id), (["why", waiting], "later"),
            (["logs", claim.id], "hello"), (["worker", "ls"], "w1"), (["queue", "ls"], "later"), (["limit", "ls"], ""),
            (["schedule", "ls"], ""), (["plan", "ls"], ""), (["session", "ls"], ""), (["dead", "ls"], ""),
            (["events"], claim.id), (["wait", "--timeout", "10ms", waiting], waiting),
        ):  # fmt: skip
            answer = cli(*reader, *argv)
            assert says in answer.out + answer.err, argv
            assert answer.code == (124 if argv[0] == "wait" else 0), answer
        for argv in (["submit", "--", "true"], ["cancel", claim.id], ["queue", "pause", "default"], ["reap"]):
            answer = cli(*reader, *argv)
            assert "does not allow that to this user" in sentence(answer)
            assert answer.code == 4
        for words in (("FLUSHALL",), ("KEYS", "*"), ("GET", "another-key"), ("SCRIPT", "FLUSH")):
            with pytest.raises(NotAllowed), closing(Connection(reader[1])) as connection:
                connection.command(*words)


def test_a_user_with_the_rights_of_a_worker_submits_and_works_and_reaches_no_other_namespace(
    world: World, server: Server, cli: Cli
) -> None:
    worker = login(world, server, "agentq-worker")
    run = cli(*worker, "submit", "--", "true").out.split()[0]
    argv = [sys.executable, "-m", "agentq.cli.main", *worker, "worker", "--burst"]

    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)

    assert done.returncode == 0, done.stderr
    assert world.state(run) == "completed"
    assert cli(*worker, "doctor").code == 0
    for words in (("FLUSHALL",), ("KEYS", "*"), ("GET", "agentq:{another}:schema"), ("CONFIG", "GET", "dir")):
        with pytest.raises(NotAllowed), closing(Connection(worker[1])) as connection:
            connection.command(*words)
