"""What a type checker knows of tasks and their runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
client.submit(send, client.submit("m:f").later, client.submit(plain, True).result()[0])

async def main() -> None:
    reveal_type(await fetch("u"))
    reveal_type(await (await fetch.submit_async("u")))
    reveal_type(await gather_async(await client.aio.submit(plain, False)))

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
    "list[float]",
    "bytes",
    "bytes",
    "list[list[int]]",
)


def test_signatures_and_results_are_typed(tmp_path: Path) -> None:
    (tmp_path / "snippet.py").write_text(SNIPPET)
    argv = [sys.executable, "-m", "mypy", "--strict", "--no-color-output", "--allow-empty-bodies", "snippet.py"]

    done = subprocess.run([*argv, "--cache-dir", str(tmp_path)], cwd=tmp_path, capture_output=True, text=True)

    revealed = [line.partition('"')[2].rstrip('"') for line in done.stdout.splitlines() if "Revealed" in line]
    short = [each.replace("agentq.sdk.handles.", "").replace("builtins.", "") for each in revealed]
    assert tuple(short) == REVEALED
    wrong = [number for number, line in enumerate(SNIPPET.splitlines(), 1) if line.endswith("# wrong")]
    errors = [int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error:" in line]
    assert errors == wrong
