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

from agentq.bench import throughput as coordinator
from agentq.bench import worker_throughput as worker
from agentq.bench.agents import AGENTS_QUICK, AgentBench, AgentScale
from agentq.bench.functions import FUNCTIONS_QUICK, FunctionBench, FunctionScale
from agentq.bench.http_server import SERVER_QUICK, ServerBench, ServerScale
from agentq.bench.plans import PLANS_QUICK, PlanBench, PlanScale
from agentq.bench.remote_worker import REMOTE_WORKER_QUICK, RemoteWorkerBench, RemoteWorkerScale
from agentq.bench.throughput import BenchFigure, BenchNamespace, median_ratio, process_environment
from agentq.bench.waiting import WAITING_QUICK, WaitingBench, WaitingScale
from agentq.bench.worktrees import WORKTREES_QUICK, WorktreeBench, WorktreeScale
from agentq.cli.connect import print_note, read_settings
from agentq.cli.options import Json
from agentq.cli.render import on_terminal, paint, print_json, print_table
from agentq.coordinator.config.settings import Settings
from agentq.coordinator.errors import AgentqError, Invalid
from agentq.coordinator.storage.embedded import EmbeddedServer

BENCH_PARTS = (
    "coordinator",
    "waiting",
    "plans",
    "worker",
    "functions",
    "agents",
    "worktrees",
    "server",
    "transport",
    "cold",
)
ROUNDS = 20
ROUNDS_QUICK = 3
AGENTQ_COMMAND = (sys.executable, "-m", "agentq.cli.main")
SERVE_COMMAND = (*AGENTQ_COMMAND, "serve", "--no-token")
COLD_COMMANDS = {
    "import": (sys.executable, "-c", "import redis, pydantic, typer"),
    "submit": (sys.executable, "-c", "from agentq.cli.main import app; app()", "submit", "--", "true"),
    "help": (sys.executable, "-c", "from agentq.cli.main import app; app()", "--help"),
}
"""The programs started cold. The second and third do the same as the installed command."""


def bench(
    ctx: typer.Context,
    only: Annotated[
        str | None, typer.Option(metavar="|".join(BENCH_PARTS), help="The part to measure; all if not given.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Measure for some seconds only; rough figures.")] = False,
    json: Json = False,
) -> None:
    """Measure the overhead of agentq on this machine, against the same work done without it.

    Takes a few minutes, on a server of its own in a temporary folder. With an address set it measures that server, in
    a namespace of its own that it removes; what others do there meanwhile counts too. Figures without a unit are
    ratios, ours to the bare thing, measured in turn.

    \b
    Example: agentq bench --quick
    """
    if only is not None and only not in BENCH_PARTS:
        raise Invalid(f"--only takes {', '.join(BENCH_PARTS[:-1])} or {BENCH_PARTS[-1]}, not {only[:40]!r}.")
    with (
        _sigterm_as_interrupt(),
        _temporary_folder() as folder,
        _bench_namespace(read_settings(ctx).settings.url, folder) as place,
    ):
        for part in (only,) if only else BENCH_PARTS:
            for figure in _measure_part(part, place, folder, quick=quick):
                _print_figure(part, figure, json=json)


def _measure_part(part: str, place: BenchNamespace, folder: Path, *, quick: bool) -> Iterator[BenchFigure]:
    if part == "coordinator":
        return coordinator.CoreBench(place, coordinator.CORE_QUICK if quick else coordinator.CoreScale()).figures()
    if part == "waiting":
        return WaitingBench(place, WAITING_QUICK if quick else WaitingScale()).figures()
    if part == "plans":
        return PlanBench(place, PLANS_QUICK if quick else PlanScale()).figures()
    if part == "server":
        return ServerBench(place, SERVER_QUICK if quick else ServerScale(), SERVE_COMMAND, folder).figures()
    if part == "transport":
        serve, scale_of = SERVE_COMMAND, REMOTE_WORKER_QUICK if quick else RemoteWorkerScale()
        return RemoteWorkerBench(place, scale_of, (*AGENTQ_COMMAND, "worker"), serve, folder).figures()
    if part in ("worker", "functions", "agents", "worktrees"):
        scale = worker.WORKER_QUICK if quick else worker.WorkerScale()
        workers = worker.WorkerBench(place, scale, (*AGENTQ_COMMAND, "worker"), folder)
        if part == "worker":
            return workers.figures()
        if part == "agents":
            return AgentBench(AGENTS_QUICK if quick else AgentScale(), workers).figures()
        if part == "worktrees":
            return WorktreeBench(WORKTREES_QUICK if quick else WorktreeScale(), workers).figures()
        return FunctionBench(place, FUNCTIONS_QUICK if quick else FunctionScale(), workers).figures()
    return measure_cold_start(place, folder, ROUNDS_QUICK if quick else ROUNDS)


def measure_cold_start(place: BenchNamespace, folder: Path, rounds: int) -> Iterator[BenchFigure]:
    """What it takes to start, do one thing and end, against importing the libraries; others disturb CPU time least."""
    variables = process_environment(Settings(url=place.url, namespace=place.namespace), folder)
    for argv in COLD_COMMANDS.values():
        _time_process(argv, variables)  # the first start makes the bytecode
    cpu: dict[str, list[float]] = {name: [] for name in COLD_COMMANDS}
    wall: dict[str, list[float]] = {name: [] for name in COLD_COMMANDS}
    for _ in range(rounds):
        for name, argv in COLD_COMMANDS.items():
            used, passed = _time_process(argv, variables)
            cpu[name].append(used)
            wall[name].append(passed)
    for kind, took in (("CPU", cpu), ("wall", wall)):
        each = {name: f"{median(times) * 1e3:.0f} ms" for name, times in took.items()}
        for name, shown in (("submit", "agentq submit"), ("help", "agentq --help")):
            found = f"{each[name]}, importing redis, pydantic and typer {each['import']}"
            yield BenchFigure(f"cold `{shown}`, {kind}", found, median_ratio(took[name], took["import"]), most=1.4)
        found = f"{each['help']}, submit {each['submit']}"
        yield BenchFigure(
            f"cold `agentq --help` to `submit`, {kind}", found, median_ratio(took["help"], took["submit"]), most=1
        )


def _time_process(argv: tuple[str, ...], variables: Mapping[str, str]) -> tuple[float, float]:
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


def _print_figure(part: str, figure: BenchFigure, *, json: bool) -> None:
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
def _temporary_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="aq"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _bench_namespace(url: str, folder: Path) -> Iterator[BenchNamespace]:
    """A namespace on the server, or on one that lives as long as this."""
    if url:
        with closing(BenchNamespace(url)) as place:
            print_note(f"measuring in the namespace {place.namespace}, which is removed at the end.")
            yield place
        return
    embedded = EmbeddedServer(folder / "server")
    try:
        with closing(BenchNamespace(embedded.start())) as place:
            yield place
    finally:
        embedded.stop()


@contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """SIGTERM, as of `timeout`, is taken like Ctrl-C: a million runs would be left on somebody's server."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
