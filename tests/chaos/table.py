"""Measures what each fault costs, as a table in markdown: `PYTHONPATH=tests python tests/chaos/table.py`."""

from __future__ import annotations

import random
import shutil
import tempfile
from pathlib import Path

from chaos.clock import Clock, durable_server
from chaos.nemesis import FAULTS, Fault
from chaos.scene import TIMES, Scene
from chaos.verdict import judge, repeated
from support.servers import until

PATIENCE_S = 60
RUN_S = 0.8


def measured(fault: Fault, folder: Path) -> str:
    """A row: one fault in a scene that is otherwise well."""
    clock = Clock(folder)
    server = durable_server(folder, clock).start()
    scene = Scene(server, folder, random.Random(1), run_s=RUN_S, clock=clock)
    try:
        with scene.playing():
            until(lambda: all(one.runs for one in scene.crew.records.workers()), "all to work", PATIENCE_S)
            there, fault_at_s = scene.acknowledged(), uptime_s()
            with fault(scene):
                until(lambda: scene.over(there), "what was there to end", PATIENCE_S)
                over_s = uptime_s() - fault_at_s
                after = [run for run in wait_for_more(scene, there) if run not in there]
                until(lambda: scene.over(after), "more to end", PATIENCE_S)
        judge(scene)
        runs, lives = scene.acknowledged(), scene.journal.lives()
        lost = [run for run in runs if not scene.over([run])]
        on_s = min(life.began_s for life in lives if life.run in after) - fault_at_s
        return f"| {fault.__doc__} | {len(runs)} | {len(lost)} | {repeated(scene)} | {on_s:.2f} s | {over_s:.2f} s |"
    finally:
        server.stop()


def uptime_s() -> float:
    """By the clock of the journal, which nobody sets."""
    return float(Path("/proc/uptime").read_text().split()[0])


def wait_for_more(scene: Scene, there: list[str]) -> list[str]:
    """What has been acknowledged, once there is more than there was."""
    until(lambda: len(scene.acknowledged()) > len(there), "more to be acknowledged", PATIENCE_S)
    return scene.acknowledged()


def main() -> None:
    print(
        f"Lease {TIMES['lease_ms']} ms, heartbeat {TIMES['heartbeat_ms']} ms, 3 workers of 3 slots, runs {RUN_S} s.\n"
    )
    print("| fault | acknowledged | lost | run again | a new run began after | all that was there had ended after |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for fault in FAULTS:
        folder = Path(tempfile.mkdtemp(prefix="aq"))
        print(measured(fault, folder), flush=True)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
