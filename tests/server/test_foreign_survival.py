"""Runners that give up after three errors in a row do not: a server is killed beside another, Redis restarts."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from balancer import Balancer
from foreign import Client, OldRunner
from servers import Server, until
from serving import Serving

RUNS = 12


def effect_of(folder: Path) -> Callable[[dict[str, Any]], list[str]]:
    """Each run writes down that it was there, after a moment."""
    return lambda run: ["sh", "-c", f"sleep 0.3; echo {run['run_id']} >> {folder}/effects"]


def effects(folder: Path) -> list[str]:
    path = folder / "effects"
    return path.read_text().split() if path.exists() else []


def all_completed(client: Client, runs: list[str]) -> bool:
    return all(client.serving.records.get(run).state == "completed" for run in runs)


def test_a_server_is_killed_beside_another_and_nothing_is_lost_or_doubled(
    durable: Server, make_serving: Callable[..., Serving], tmp_path: Path
) -> None:
    first = make_serving(durable)
    second = make_serving(durable, namespace=first.settings.namespace)
    client = Client(second)
    with Balancer([first.port, second.port]) as balancer:
        runner = OldRunner(first, "c", url=balancer.url, argv=effect_of(tmp_path), tags=["slots=3"])
        runs = [client.start()["run_id"] for _ in range(RUNS)]
        until(lambda: len(effects(tmp_path)) >= 2, "some work to be done")

        first.signal(signal.SIGKILL)

        until(lambda: all_completed(client, runs), "all runs to complete", 60)
        assert not runner.gave_up
        runner.close()
    client.http.close()
    assert sorted(effects(tmp_path)) == sorted(runs)


def test_redis_restarts_under_load_and_every_poller_goes_on(
    durable: Server, make_serving: Callable[..., Serving], tmp_path: Path
) -> None:
    serving = make_serving(durable)
    client = Client(serving)
    runners = [
        OldRunner(serving, "a", argv=effect_of(tmp_path), hostname=f"host-{number}", slots=2) for number in range(3)
    ]
    runs = [client.start("a")["run_id"] for _ in range(RUNS)]
    until(lambda: len(effects(tmp_path)) >= 2, "some work to be done")

    durable.signal(signal.SIGKILL)
    durable.start()

    until(lambda: all_completed(client, runs), "all runs to complete", 60)
    runs += [client.start()["run_id"] for _ in runners]
    until(lambda: all_completed(client, runs), "those that came later, too", 30)
    assert not any(runner.gave_up for runner in runners)
    for runner in runners:
        runner.close()
    client.http.close()
    assert sorted(effects(tmp_path)) == sorted(runs)
