"""What a type checker knows of tasks and their runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.generated_docs import ROOT

SNIPPET = """
from agentq.sdk import Client, Run, connect, gather, gather_async, task

@task
def send(to: str, times: int = 1) -> float: ...

@task(queue="mail")
async def fetch(url: str) -> bytes: ...

def plain(flag: bool) -> list[int]: ...

client = connect()
reveal_type(send("a"))
reveal_type(send.submit("a", times=2))
reveal_type(send.options(priority=1).submit("a").result())
reveal_type(fetch.submit("u").result())
reveal_type(client.submit(plain, True).result())
reveal_type(client.submit(fetch, "u"))
reveal_type(client.submit("m:f", 1, x=2).result())
reveal_type(gather(send.submit("a"), send.submit("b")))
reveal_type(gather(send.submit("a"), fetch.submit("u"), return_exceptions=True))
reveal_type(gather(*[send.submit("a")], timeout=1))
reveal_type(client.submit_many(fetch, [("u",)]))
reveal_type(client.submit_many(plain, [(True,)]))
reveal_type(client.submit_many("m:f", [(True,)]))
reveal_type(send.submit("a").record().wait.signals)
client.submit(send, client.submit("m:f").later, client.submit(plain, True).result()[0])

async def main() -> None:
    reveal_type(await fetch("u"))
    reveal_type(await (await fetch.submit_async("u")))
    reveal_type(await gather_async(await client.aio.submit(plain, False)))
    reveal_type(await gather_async(await fetch.submit_async("u"), await send.submit_async("a")))
    reveal_type(await client.aio.submit_many(fetch, [("u",)]))

send.submit(1)  # wrong
send.submit("a", time=2)  # wrong
client.submit(plain, "yes")  # wrong
task(que="mail")  # wrong
send.options(timeout=30)  # wrong
"""

REVEALED = (
    "float",
    "Run[float]",
    "float",
    "bytes",
    "list[int]",
    "Run[bytes]",
    "Any",
    "tuple[float, float]",
    "tuple[float | BaseException, bytes | BaseException]",
    "list[float]",
    "list[Run[bytes]]",
    "list[Run[list[int]]]",
    "list[Run[Any]]",
    "tuple[str, ...]",
    "bytes",
    "bytes",
    "list[list[int]]",
    "tuple[bytes, float]",
    "list[AsyncRun[bytes]]",
)


def checked(folder: Path, *files: str) -> str:
    """What mypy says of the files of a folder."""
    argv = [sys.executable, "-m", "mypy", "--strict", "--no-color-output", "--allow-empty-bodies", *files]
    return subprocess.run([*argv, "--cache-dir", str(folder)], cwd=folder, capture_output=True, text=True).stdout


@pytest.mark.full("takes 3 s")
def test_signatures_and_results_are_typed(tmp_path: Path) -> None:
    (tmp_path / "snippet.py").write_text(SNIPPET)

    said = checked(tmp_path, "snippet.py").splitlines()

    revealed = [line.partition('"')[2].rstrip('"') for line in said if "Revealed" in line]
    assert tuple(re.sub(r"[a-z_.]+\.(?=\w)", "", each) for each in revealed) == REVEALED
    wrong = [number for number, line in enumerate(SNIPPET.splitlines(), 1) if line.endswith("# wrong")]
    assert [int(line.split(":")[1]) for line in said if ": error:" in line] == wrong


@pytest.mark.full("checks the types of every example, with mypy's cache empty")
def test_every_example_of_the_readme_has_right_types(tmp_path: Path) -> None:
    """But for the call that it shows as refused. Those of tests are left out: their fixtures have no types there."""
    page = (ROOT / "coordinator/agentq/sdk/README.md").read_text(encoding="utf-8")
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", page, re.DOTALL)):
        (tmp_path / (block.split()[1] if block.startswith("# ") else f"example_{number}.py")).write_text(block)
    (tmp_path / "test_shop.py").unlink()

    (wrong, summary) = checked(tmp_path, ".").splitlines()

    assert 'to "submit" of "Task" has incompatible type "dict[str, object]"; expected "Order"' in wrong, summary
