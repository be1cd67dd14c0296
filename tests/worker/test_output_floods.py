"""Programs that write far more than anybody keeps: the worker's memory stays flat, and both ends are in the file."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from support.pipes import Memory, Pipes

from agentq.coordinator.bounds import LOG_CHUNK_CHARACTERS, TAIL_CHARACTERS
from agentq.worker.output.log_file import HEAD_BYTES, TAIL_BYTES

GIB = 1_000_000_000
GROWTH_MIB_MAX = 50


@pytest.mark.full("takes 3 s")
def test_a_gigabyte_leaves_the_memory_flat(folder: Path) -> None:
    async def main() -> None:
        pipes, memory = Pipes(folder), Memory()
        assert await pipes.run(f"echo begin; yes 'a line of a flood' | head -c {GIB}; echo; echo end")

        assert memory.growth_mib() < GROWTH_MIB_MAX
        assert pipes.output.bytes_out == len("begin\n") + GIB + len("\nend\n")
        assert pipes.heard.text().startswith("begin\na line of a flood\n")
        assert pipes.heard.text().endswith("\nend\n")
        assert len(pipes.heard.text()) + pipes.heard.left_out() == pipes.output.bytes_out

    asyncio.run(main())
    size = _check_both_ends(folder, b"begin\na line", b"\nend\n")
    assert HEAD_BYTES + TAIL_BYTES < size < HEAD_BYTES + 2 * TAIL_BYTES + 100


def _check_both_ends(folder: Path, begin: bytes, end: bytes) -> int:
    """The one file that is left has the beginning and the end; returns its size."""
    (path,) = (folder / "logs").rglob("*.log*")
    whole = path.read_bytes()
    assert whole.startswith(begin)
    assert whole.endswith(end)
    missing = re.search(rb"\n\[agentq: (\d+) bytes left out here\]\n", whole)
    assert missing is not None
    assert missing.start() == HEAD_BYTES
    assert len(whole) - len(missing[0]) + int(missing[1]) == len(b"begin\n") + GIB + len(b"\nend\n")
    return len(whole)


def test_a_line_of_a_hundred_megabytes_leaves_the_memory_flat(folder: Path) -> None:
    async def main() -> None:
        pipes, memory = Pipes(folder), Memory()
        assert await pipes.run("head -c 100000000 /dev/zero | tr '\\0' x; echo; echo next")

        assert memory.growth_mib() < GROWTH_MIB_MAX
        assert max(len(chunk.text) for chunk in pipes.heard.chunks) <= LOG_CHUNK_CHARACTERS
        assert pipes.heard.text().endswith("x\nnext\n")
        assert len(pipes.heard.text()) + pipes.heard.left_out() == pipes.output.bytes_out == 100_000_006

    asyncio.run(main())


def test_a_million_tiny_lines_are_all_in_the_file(folder: Path) -> None:
    async def main() -> None:
        pipes, memory = Pipes(folder), Memory()
        assert await pipes.run("seq 1000000")

        assert memory.growth_mib() < GROWTH_MIB_MAX
        assert pipes.file.read_text() == "".join(f"{number}\n" for number in range(1, 1_000_001))
        assert pipes.output.tail() == pipes.file.read_text()[-TAIL_CHARACTERS:]

    asyncio.run(main())


def test_a_hundred_thousand_tiny_writes_of_both_streams_leave_the_memory_flat(folder: Path) -> None:
    program = "for _ in range(50000):\n os.write(1, b'o')\n os.write(2, b'e')"

    async def main() -> None:
        pipes, memory = Pipes(folder), Memory()
        assert await pipes.run("python3", "-c", f"import os\n{program}")

        assert memory.growth_mib() < GROWTH_MIB_MAX
        assert (pipes.heard.text("out"), pipes.heard.text("err")) == ("o" * 50_000, "e" * 50_000)

    asyncio.run(main())
