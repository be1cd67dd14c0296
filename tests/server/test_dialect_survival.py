"""Runners that give up after three errors in a row survive a killed server and a restart of Redis."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.dialect_runner import Client, OldRunner, Parties
from support.http_servers import Serving
from support.load_balancer import Balancer
from support.servers import Server, until

RUNS = 12


def effect_of(folder: Path) -> Callable[[dict[str, Any]], list[str]]:
    """Each run writes down that it was there, after a moment."""
    return lambda run: ["sh", "-c", f"sleep 0.3; echo {run['run_id']} >> {folder}/effects"]


def effects(folder: Path) -> list[str]:
    path = folder / "effects"
    return path.read_text().split() if path.exists() else []


def all_completed(client: Client, runs: list[str]) -> bool:
    return all(client.serving.records.get(run).state == "completed" for run in runs)


@pytest.mark.full("takes 4 s")
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


@pytest.mark.full("takes 2 s")
def test_runners_serve_a_namespace_that_is_spread_over_partitions(
    valkey: Server, make_serving: Callable[..., Serving]
) -> None:
    """Sessions, their runs, a runner's own key and what is owed live in different partitions, and find each other."""
    parties = Parties(make_serving(valkey, partitions=3))
    runner, client = parties.hand(tags=["slots=8"]), parties.client()
    begun = [client.start() for _ in range(4)]
    for _ in begun:
        given = runner.take()
        told = {"event_type": "result", "result_text": f"of {given['session_id']}"}
        assert runner.http.post(f"/sessions/{given['session_id']}/events", json=told).status_code == 201
        runner.report(given["run_id"], "completed", session_status="finished")
    for each in begun:
        assert client.result(each["session_id"]).json()["result"] == f"of {each['session_id']}"
        assert client.resume(each["session_id"])["session_id"] == each["session_id"]
    turns = {runner.take()["run_id"] for _ in begun}
    stopped = client.http.post(f"/sessions/{begun[0]['session_id']}/stop").json()
    assert stopped["run_id"] in turns
    assert runner.poll() == {"stop_sessions": [begun[0]["session_id"]]}
    for party in (runner, client):
        party.http.close()


@pytest.mark.full("takes 3 s")
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
