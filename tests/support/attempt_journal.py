"""What runs write down about themselves: when each attempt began, each sign of life, and when it came to its end."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from agentq.coordinator.model.spec import RunSpec

# /proc/uptime is the clock that every process of a machine shares, read without starting one more.
SCRIPT = """
mark() { read -r now _ < /proc/uptime; echo "$1 $now $AGENTQ_RUN $$ $AGENTQ_WORKER" >> "$JOURNAL"; }
mark begin
for i in $(seq $BEATS); do sleep $PACE; mark beat; done
mark end
"""
PACE_S = 0.05
RESOLUTION_S = 0.011
"""That clock counts hundredths of a second."""


@dataclass(frozen=True)
class Life:
    """One attempt, as it saw itself."""

    run: str
    fence: str
    pid: int
    worker: str
    began_s: float
    last_s: float
    ended: bool

    @property
    def attempt(self) -> int:
        return int(self.fence.partition("-")[0])


class Journal:
    """A file that runs append to, each line in one write."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def spec(self, seconds: float, before: str = "", **fields: object) -> RunSpec:
        """A run of about that length, which gives a sign of life twenty times a second."""
        argv = ["sh", "-c", before + SCRIPT]
        env = {"JOURNAL": str(self.path), "BEATS": str(round(seconds / PACE_S)), "PACE": str(PACE_S)}
        return RunSpec.checked(**{"kind": "command", "argv": argv, "env": env, "cwd": str(self.path.parent), **fields})

    def lives(self) -> list[Life]:
        """All attempts, in the order in which they began."""
        lines: dict[str, list[list[str]]] = defaultdict(list)
        for line in self.path.read_text().splitlines():
            words = line.split()
            assert len(words) == 5, f"a line that was not written at once: {line}"
            lines[words[2]].append(words)
        return sorted((_life(cookie, words) for cookie, words in lines.items()), key=lambda life: life.began_s)

    def of(self, run: str) -> list[Life]:
        return [life for life in self.lives() if life.run == run]

    def begun(self) -> int:
        """How many attempts there have been."""
        return len(self.lives())

    def ended(self) -> int:
        """How many attempts came to their end."""
        return sum(life.ended for life in self.lives())

    def overlaps(self) -> list[tuple[Life, Life]]:
        """Attempts of the same run that lived at the same time."""
        found, latest = [], dict[str, Life]()
        for life in self.lives():
            before = latest.get(life.run)
            if before is not None and before.last_s > life.began_s + RESOLUTION_S:
                found.append((before, life))
            latest[life.run] = life
        return found

    def survivors(self) -> list[int]:
        """Processes of runs that are alive."""
        name = f"JOURNAL={self.path}".encode()
        return [
            int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit() and name in _environment(each)
        ]


def _life(cookie: str, lines: list[list[str]]) -> Life:
    _, run, fence = cookie.split("/")
    began = [words for words in lines if words[0] == "begin"]
    assert len(began) == 1, f"{cookie} began {len(began)} times"
    last = max(float(words[1]) for words in lines)
    return Life(run, fence, int(began[0][3]), began[0][4], float(began[0][1]), last, lines[-1][0] == "end")


def _environment(process: Path) -> list[bytes]:
    try:
        return (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return []
