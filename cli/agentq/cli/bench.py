"""`agentq bench`: what agentq costs on this machine, each figure beside its bare counterpart in the same run.

1. Measure on the server that is set, in a namespace of its own; where none is set, on one that is started for this.
2. Print each figure as it is found, with what was aimed at, and whether it was reached.
3. Leave nothing behind, also when interrupted.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Annotated

import typer

from agentq.cli.options import Json
from agentq.cli.render import on_terminal, paint, print_json, print_table
from agentq.cli.server import note, settings_of
from agentq.coordinator import bench as coordinator
from agentq.coordinator.bench import Figure, Place, environment, ratio
from agentq.coordinator.bench_plans import PLANS_QUICK, PlanBench, PlanScale
from agentq.coordinator.bench_server import SERVER_QUICK, ServerBench, ServerScale
from agentq.coordinator.bench_waiting import WAITING_QUICK, WaitingBench, WaitingScale
from agentq.coordinator.embedded import Embedded
from agentq.coordinator.errors import AgentqError, Invalid
from agentq.coordinator.settings import Settings
from agentq.worker import bench as worker
from agentq.worker.bench_agents import AGENTS_QUICK, AgentBench, AgentScale
from agentq.worker.bench_functions import FUNCTIONS_QUICK, FunctionBench, FunctionScale
from agentq.worker.bench_transport import TRANSPORT_QUICK, TransportBench, TransportScale
from agentq.worker.bench_worktrees import WORKTREES_QUICK, WorktreeBench, WorktreeScale

PARTS = ("coordinator", "waiting", "plans", "worker", "functions", "agents", "worktrees", "server", "transport", "cold")
ROUNDS = 20
ROUNDS_QUICK = 3
AGENTQ = (sys.executable, "-m", "agentq.cli.main")
SERVE = (*AGENTQ, "serve", "--no-token")
COLD = {
    "import": (sys.executable, "-c", "import redis, pydantic, typer"),
    "submit": (sys.executable, "-c", "from agentq.cli.main import app; app()", "submit", "--", "true"),
    "help": (sys.executable, "-c", "from agentq.cli.main import app; app()", "--help"),
}
"""What is started cold. The second and third are what the installed command does."""


def bench(
    ctx: typer.Context,
    only: Annotated[str | None, typer.Option(metavar="|".join(PARTS), help="One part of it.")] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A taste of it in some seconds; the figures are rough.")
    ] = False,
    json: Json = False,
) -> None:
    """Measure what agentq costs here, beside what it costs to do the same without it.

    Takes a few minutes, on a server of its own in a temporary folder. With an address set it measures that server, in
    a namespace of its own that it removes; what others do there meanwhile counts too. Figures without a unit are
    ratios, ours to the bare thing, measured in turn.

    \b
    Example: agentq bench --quick
    """
    if only is not None and only not in PARTS:
        raise Invalid(f"--only takes {', '.join(PARTS[:-1])} or {PARTS[-1]}, not {only[:40]!r}.")
    with _terminated_as_interrupted(), _folder() as folder, _place(settings_of(ctx).settings.url, folder) as place:
        for part in (only,) if only else PARTS:
            for figure in _figures(part, place, folder, quick=quick):
                _print(part, figure, json=json)


def _figures(part: str, place: Place, folder: Path, *, quick: bool) -> Iterator[Figure]:
    if part == "coordinator":
        return coordinator.Bench(place, coordinator.QUICK if quick else coordinator.Scale()).figures()
    if part == "waiting":
        return WaitingBench(place, WAITING_QUICK if quick else WaitingScale()).figures()
    if part == "plans":
        return PlanBench(place, PLANS_QUICK if quick else PlanScale()).figures()
    if part == "server":
        return ServerBench(place, SERVER_QUICK if quick else ServerScale(), SERVE, folder).figures()
    if part == "transport":
        serve, scale_of = SERVE, TRANSPORT_QUICK if quick else TransportScale()
        return TransportBench(place, scale_of, (*AGENTQ, "worker"), serve, folder).figures()
    if part in ("worker", "functions", "agents", "worktrees"):
        scale = worker.QUICK if quick else worker.Scale()
        workers = worker.Bench(place, scale, (*AGENTQ, "worker"), folder)
        if part == "worker":
            return workers.figures()
        if part == "agents":
            return AgentBench(AGENTS_QUICK if quick else AgentScale(), workers).figures()
        if part == "worktrees":
            return WorktreeBench(WORKTREES_QUICK if quick else WorktreeScale(), workers).figures()
        return FunctionBench(place, FUNCTIONS_QUICK if quick else FunctionScale(), workers).figures()
    return cold(place, folder, ROUNDS_QUICK if quick else ROUNDS)


def cold(place: Place, folder: Path, rounds: int) -> Iterator[Figure]:
    """What it takes to start, do one thing and end, against importing the libraries; others disturb CPU time least."""
    variables = environment(Settings(url=place.url, namespace=place.namespace), folder)
    for argv in COLD.values():
        _timed(argv, variables)  # the first start makes the bytecode
    cpu: dict[str, list[float]] = {name: [] for name in COLD}
    wall: dict[str, list[float]] = {name: [] for name in COLD}
    for _ in range(rounds):
        for name, argv in COLD.items():
            used, passed = _timed(argv, variables)
            cpu[name].append(used)
            wall[name].append(passed)
    for kind, took in (("CPU", cpu), ("wall", wall)):
        each = {name: f"{median(times) * 1e3:.0f} ms" for name, times in took.items()}
        for name, shown in (("submit", "agentq submit"), ("help", "agentq --help")):
            found = f"{each[name]}, importing redis, pydantic and typer {each['import']}"
            yield Figure(f"cold `{shown}`, {kind}", found, ratio(took[name], took["import"]), most=1.4)
        found = f"{each['help']}, submit {each['submit']}"
        yield Figure(f"cold `agentq --help` to `submit`, {kind}", found, ratio(took["help"], took["submit"]), most=1)


def _timed(argv: tuple[str, ...], variables: Mapping[str, str]) -> tuple[float, float]:
    """Seconds on a processor, and seconds by the clock, of a process."""
    started = perf_counter()
    process = subprocess.Popen(
        argv, env=variables, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    assert process.stderr is not None
    with process.stderr:
        said = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    passed = perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise AgentqError(f"`{' '.join(argv[2:])}` failed: {said.decode(errors='replace').strip()}")
    return usage.ru_utime + usage.ru_stime, passed


def _print(part: str, figure: Figure, *, json: bool) -> None:
    """At once: the whole takes minutes."""
    value = f"{figure.value:,.{2 if abs(figure.value) < 100 else 0}f} {figure.unit}".rstrip()
    verdict = "reached" if figure.reached else "missed"
    if json:
        names = ("measure", "found", "value", "unit", "most", "least", "reached")
        print_json({"part": part} | {name: getattr(figure, name) for name in names})
    elif on_terminal():
        shown = paint(f"{verdict:8}", like="ok" if figure.reached else "warn")
        print(f"{figure.measure:42} {value:>12}  {figure.aim:12} {shown} {figure.found}", flush=True)
    else:
        print_table((), [(figure.measure, value, figure.aim, verdict, figure.found)])
        sys.stdout.flush()


@contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="aq"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _place(url: str, folder: Path) -> Iterator[Place]:
    """A namespace on the server, or on one that lives as long as this."""
    if url:
        with closing(Place(url)) as place:
            note(f"measuring in the namespace {place.namespace}, which is removed at the end.")
            yield place
        return
    embedded = Embedded(folder / "server")
    try:
        with closing(Place(embedded.start())) as place:
            yield place
    finally:
        embedded.stop()


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM, as of `timeout`, is taken like Ctrl-C: a million runs would be left on somebody's server."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
