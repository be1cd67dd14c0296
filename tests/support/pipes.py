"""Outputs on real pipes, fed by real programs or by the test itself."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from agentq.coordinator.runs.logs import LogChunk, LogStream
from agentq.worker.output.output_pipes import OutputPipes


@dataclass
class Heard:
    """What an output handed on."""

    chunks: list[LogChunk] = field(default_factory=list)
    calls: int = 0
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    def __call__(self, chunks: list[LogChunk]) -> None:
        assert chunks
        self.chunks += chunks
        self.calls += 1
        self._news.set()

    def text(self, *streams: LogStream) -> str:
        return "".join(chunk.text for chunk in self.chunks if chunk.stream in (streams or ("out", "err")))

    def left_out(self) -> int:
        """How many bytes the notes say were left out."""
        return sum(map(int, re.findall(r"^(\d+) bytes left out", self.text("note"), re.MULTILINE)))

    async def hears(self, text: str) -> None:
        """Wait until something was handed on."""
        async with asyncio.timeout(20):
            while text not in self.text("out", "err", "note"):
                self._news.clear()
                await self._news.wait()


class Pipes:
    """Two pipes and the output that drains them; the test, or a program that it starts, writes."""

    def __init__(self, folder: Path, name: str = "1") -> None:
        out, self.out = os.pipe()
        err, self.err = os.pipe()
        os.set_blocking(out, False)
        os.set_blocking(err, False)
        self.heard = Heard()
        self.file = folder / "logs" / "run_x" / f"{name}.log"
        self.output = OutputPipes(out, err, self.file, self.heard)

    def start(self, *argv: str, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
        """Start a program, which then has the only writing ends; with `sh`, one word is a script."""
        words = argv if len(argv) > 1 else ("sh", "-c", *argv)
        process = subprocess.Popen(words, stdin=stdin, stdout=self.out, stderr=self.err)
        self.let_go()
        return process

    def let_go(self) -> None:
        """Close the test's own writing ends."""
        os.close(self.out)
        os.close(self.err)

    async def run(self, *argv: str, drained_ms: int = 20_000) -> bool:
        """Run a program to its end; whether both pipes came to theirs."""
        process = self.start(*argv)
        await asyncio.to_thread(process.wait, 60)
        return await self.output.drain(drained_ms)

    async def end(self) -> None:
        """The test has written everything."""
        self.let_go()
        assert await self.output.drain(20_000)


async def turn() -> None:
    """Let the loop look at its pipes, and at nothing that takes time."""
    for _ in range(3):
        await asyncio.sleep(0)


def memory_kib(name: str) -> int:
    """A line of this process' memory: VmRSS now, VmHWM at its highest."""
    found = re.search(rf"^{name}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1])


class Memory:
    """How much this process' memory grows, at its highest."""

    def __init__(self) -> None:
        # This sets the high-water mark back to what is used now.
        Path("/proc/self/clear_refs").write_text("5")
        self._before = memory_kib("VmRSS")

    def growth_mib(self) -> float:
        return (memory_kib("VmHWM") - self._before) / 1024
