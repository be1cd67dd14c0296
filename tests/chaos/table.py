"""Measures what each fault costs, as a table in markdown: `PYTHONPATH=tests python tests/chaos/table.py`."""

from __future__ import annotations

import random
import shutil
import tempfile
from pathlib import Path

from chaos.nemesis import FAULTS, Fault
from chaos.scene import TIMES, Scene
from chaos.verdict import judge, repeated
from servers import Server, until, valkey_binary

from agentq.coordinator.clock import wall_ms

PATIENCE_S = 60
RUN_S = 0.8


def measured(fault: Fault, folder: Path) -> str:
    """A row: one fault in a scene that is otherwise well."""
    server = Server(valkey_binary(), folder / "server", "--appendonly", "yes", "--appendfsync", "always").start()
    scene = Scene(server, folder, random.Random(1), RUN_S)
    try:
        with scene.playing():
            until(lambda: all(one.runs for one in scene.crew.records.workers()), "all to work", PATIENCE_S)
            there, fault_at_ms = scene.acknowledged(), wall_ms()
            with fault(scene):
                after = [run for run in wait_for_more(scene, there) if run not in there]
                until(lambda: scene.over([*there, *after]), "what was there to end, and more", PATIENCE_S)
        judge(scene)
        runs = scene.acknowledged()
        lost = [run for run in runs if not scene.over([run])]
        records = [scene.crew.records.get(run) for run in runs]
        on_ms = min(ms for record in records if (ms := (record.started_at_ms or 0) - fault_at_ms) >= 0)
        over_ms = max((scene.crew.records.get(run).finished_at_ms or 0) for run in there) - fault_at_ms
        return f"| {fault.__doc__} | {len(runs)} | {len(lost)} | {repeated(scene)} | {on_ms} ms | {over_ms} ms |"
    finally:
        server.stop()


def wait_for_more(scene: Scene, there: list[str]) -> list[str]:
    """What has been acknowledged, once there is more than there was."""
    until(lambda: len(scene.acknowledged()) > len(there), "more to be acknowledged", PATIENCE_S)
    return scene.acknowledged()


def main() -> None:
    print(
        f"Lease {TIMES['lease_ms']} ms, heartbeat {TIMES['heartbeat_ms']} ms, 3 workers of 3 slots, runs {RUN_S} s.\n"
    )
    print(
        "| fault | acknowledged | lost | run again | the next run started after | all that was there had ended after |"
    )
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for fault in FAULTS:
        folder = Path(tempfile.mkdtemp(prefix="aq"))
        print(measured(fault, folder), flush=True)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
