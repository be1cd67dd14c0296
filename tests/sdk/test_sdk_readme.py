"""The README of the SDK: its examples run, and it names everything there is."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.generated_docs import ROOT
from support.http_servers import Serving
from support.servers import Server

import agentq.sdk
import agentq.testing
from agentq.sdk import AgentOptions, Options, RunContext, Session, Task
from agentq.sdk.agent_options import SessionOptions
from agentq.sdk.run_handle import Run

PAGE = (ROOT / "coordinator/agentq/sdk/README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
FILES = {block.split()[1]: block for block in BLOCKS if block.startswith("# ")}

WORK = """
import os, signal, threading
from agentq.sdk import connect, set_default_client
from agentq.coordinator.model.agent_events import ToolCallEvent, TextEvent, SpendingEvent
from agentq.coordinator.workers.lease import WorkerIdentity, WorkerLease
from agentq.coordinator.runs.logs import LogChunk
from agentq.coordinator.model.spec import Outcome
from agentq.coordinator.config.settings import Settings
from agentq.testing import Worker
over = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: over.set())
client = connect()
set_default_client(client)

# An agent that says the same to everybody.
events = [ToolCallEvent(tool="Bash", about="make test"), TextEvent(text="All is well."), SpendingEvent(cost_usd=0.1,
turns=1)]
story = [LogChunk("event", doing.model_dump_json() + "\\n") for doing in events]
identity = WorkerIdentity(id=f"agent-{os.getpid()}", queues=("default",), labels={"agent.claude": "ready"})
agent = WorkerLease(client.queue.store, identity, Settings(lease_ms=600_000))
agent.register()

while not over.wait(0.01):
    Worker(client).run_all()
    for claim in agent.claim(1):
        client.queue.start([claim])
        client.queue.log(claim, 1, story)
        client.queue.finish([(claim, Outcome(exit_code=0))])
agent.deregister()
"""


@pytest.fixture
def environment(
    valkey: Server, valkey_url: str, tmp_path: Path, make_serving: Callable[..., Serving]
) -> Iterator[dict[str, str]]:
    """The folder of somebody's program, with a worker for it, and a coordinator."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    variables = {
        **os.environ,
        "AGENTQ_URL": valkey_url,
        "AGENTQ_NAMESPACE": "readme",
        "COORDINATOR": make_serving(valkey, namespace="readme").url,
        "AGENTQ_PICKLE_KEY": "k" * 40,
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    with subprocess.Popen([sys.executable, "-c", WORK], cwd=tmp_path, env=variables) as worker:
        yield variables
        worker.terminate()
    assert worker.returncode == 0


@pytest.mark.full("takes 15 s")
def test_every_example_runs(environment: dict[str, str], tmp_path: Path) -> None:
    for block in BLOCKS:
        if not block.startswith("# "):
            done = subprocess.run(
                [sys.executable, "-W", "error", "-c", block],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
            )
            assert done.returncode == 0, block + done.stdout + done.stderr


@pytest.mark.full("takes 5 s")
def test_the_examples_of_tests_pass(environment: dict[str, str], tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", "test_shop.py"]

    done = subprocess.run(argv, cwd=tmp_path, env=environment, capture_output=True, text=True)

    assert done.returncode == 0, done.stdout


OPTIONS = {**Options.__annotations__, **AgentOptions.__annotations__, **SessionOptions.__annotations__}
NAMES = [*agentq.sdk.__all__, *agentq.testing.__all__, *OPTIONS]


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_and_option_is_documented(name: str) -> None:
    assert re.search(rf"`[^`\n]*\b{name}\b[^`\n]*`|import [^\n]*\b{name}\b", PAGE)


@pytest.mark.parametrize("kind", [Run, Session, Task, RunContext])
def test_every_public_method_is_documented(kind: type) -> None:
    inner = {"of", "returned", "function", "spec", "calls", "durable", "name"}
    names = [name for name in vars(kind) if not name.startswith("_") and name not in inner]

    assert [name for name in names if f".{name}" not in PAGE] == []


def test_every_link_leads_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", PAGE):
        assert (ROOT / "coordinator/agentq/sdk" / target).exists(), target


def test_the_public_names_are_sorted_and_there() -> None:
    for package in (agentq.sdk, agentq.testing):
        assert sorted(package.__all__) == package.__all__
        assert all(hasattr(package, name) for name in package.__all__)
