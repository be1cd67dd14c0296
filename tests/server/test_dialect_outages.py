"""Reports that runners and executors send once, during outages of the store and the server."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable

import httpx
import pytest
from support.dialect_runner import DETAILS, Parties
from support.http_servers import Serving
from support.servers import Server, until

from agentq.dialects.agent_orchestrator.runners.server_liveness import LIVENESS_TIMEOUT_MS


@pytest.mark.full("restarts a server, takes 4 s")
def test_a_report_in_an_outage_of_the_store_is_held_until_it_is_taken(
    durable: Server, make_serving: Callable[..., Serving]
) -> None:
    """Their runners try once, and would leave the run running for good."""
    parties = Parties(make_serving(durable))
    client, hand = parties.client(), parties.hand("v0.1-v0.6")
    run = client.start()["run_id"]
    hand.take()
    durable.signal(signal.SIGKILL)
    answers: list[httpx.Response] = []
    body = {"runner_id": hand.id, "status": "success"}
    report = threading.Thread(
        target=lambda: answers.append(hand.http.post(f"/runner/runs/{run}/completed", json=body, timeout=35))
    )
    report.start()
    report.join(2)
    assert not answers, "it is held, and not refused"

    durable.start()
    report.join(35)

    assert (answers[0].status_code, answers[0].json()) == (200, {"ok": True})
    assert client.status(run) == "completed"
    parties.close()


@pytest.mark.full("a server is killed, takes 5 s")
def test_a_poll_that_died_with_its_server_keeps_nobody_out(
    valkey: Server, make_serving: Callable[..., Serving]
) -> None:
    first = make_serving(valkey)
    body = {**DETAILS, "hostname": f"host-{time.monotonic_ns()}", "executor_profile": "x", "executor": {"command": "c"}}
    with first.client() as http:
        runner = http.post("/runner/register", json=body).json()["runner_id"]
        polling = threading.Thread(target=_polled, args=(first, runner))
        polling.start()
        key = first.store.key(0, "dialect_runner", runner)
        until(lambda: first.store.connection.command("HGET", key, "polls_until_ms"), "the poll to be held")
    first.signal(signal.SIGKILL)
    polling.join(10)
    second = make_serving(valkey, namespace=first.settings.namespace)
    began = time.monotonic()

    with second.client() as http:
        again = http.post("/runner/register", json=body)

    assert (again.status_code, again.json()["runner_id"]) == (200, runner)
    assert time.monotonic() - began < LIVENESS_TIMEOUT_MS / 1000 + 3


def _polled(serving: Serving, runner: str) -> None:
    with serving.client() as http, pytest.raises(httpx.HTTPError):
        http.get("/runner/runs", params={"runner_id": runner})
