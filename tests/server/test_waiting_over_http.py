"""Waits for runs and logs are answered, even if Redis restarts or servers stop meanwhile."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from support.http_servers import COMMAND, Serving
from support.servers import Server, until

from agentq.coordinator.model.spec import Outcome
from agentq.coordinator.runs.logs import LogChunk
from agentq.coordinator.runs.verbs import Claim
from agentq.coordinator.workers.lease import WorkerIdentity, WorkerLease


def waiters(serving: Serving) -> int:
    with serving.client() as client:
        text = client.get("/metrics").text
    return int(float(next(line for line in text.splitlines() if line.startswith("agentq_waiters ")).split()[1]))


def held(serving: Serving) -> Claim:
    """A new run in the hands of a worker."""
    run = serving.submit(queue="waited")
    worker = WorkerLease(serving.store, WorkerIdentity(id=f"w-{run}", queues=("waited",)), serving.settings)
    worker.register()
    (claim,) = worker.claim(1)
    serving.queue.start([claim])
    return claim


@pytest.mark.full("takes 2 s")
def test_a_wait_ends_when_the_run_does(serving: Serving) -> None:
    claim, before = held(serving), waiters(serving)
    with serving.client() as client, ThreadPoolExecutor() as pool:
        ends = pool.submit(client.get, f"/runs/{claim.id}", params={"wait": 30})
        results = pool.submit(client.get, f"/runs/{claim.id}/result", params={"wait": 30})
        until(lambda: waiters(serving) >= before + 2, "both to wait")
        began = time.monotonic()
        serving.queue.finish([(claim, Outcome(exit_code=0, result={"x": 1}))])
        assert ends.result().json()["state"] == "completed"
        assert results.result().json()["outcome"]["result"] == {"x": 1}
        assert time.monotonic() - began < 5


def test_a_wait_that_is_over_answers_with_what_there_is(serving: Serving) -> None:
    run = serving.submit()
    with serving.client() as client:
        known = client.get(f"/runs/{run}").headers["etag"]
        assert client.get(f"/runs/{run}", params={"wait": 0.05}).json()["state"] == "pending"
        assert client.get(f"/runs/{run}", headers={"if-none-match": known}).status_code == 304
        same = client.get(f"/runs/{run}", params={"wait": 0.05}, headers={"if-none-match": known})
        serving.queue.cancel(run)
        changed = client.get(f"/runs/{run}", params={"wait": 30}, headers={"if-none-match": known})

    assert (same.status_code, changed.status_code, changed.json()["state"]) == (304, 200, "cancelled")


@pytest.mark.full("takes 1 s")
def test_a_log_is_read_in_pieces_and_waited_for(serving: Serving) -> None:
    claim = held(serving)
    with serving.client() as client, ThreadPoolExecutor() as pool:
        path = f"/runs/{claim.id}/logs"
        serving.queue.log(claim, 1, [LogChunk("out", "one\n"), LogChunk("err", "two\n"), LogChunk("out", "three\n")])
        first = client.get(path, params={"limit": 2}).json()
        assert [each["text"] for each in first["entries"]] == ["one\n", "two\n"]
        rest = client.get(path, params={"after": first["next"], "stream": "out"}).json()
        assert ([each["text"] for each in rest["entries"]], rest["ended"]) == (["three\n"], False)
        assert [each["text"] for each in client.get(path, params={"tail": 1}).json()["entries"]] == ["three\n"]
        ranges = [client.get(path, params={"from_byte": byte, "limit": 2}).json()["entries"] for byte in (0, 4, 13, 99)]
        assert [[each["from_byte"] for each in entries] for entries in ranges] == [[0, 4], [4, 8], [8], []]
        assert client.get(path, params={"from_byte": 4, "after": first["next"]}).status_code == 422
        more = pool.submit(client.get, path, params={"after": rest["next"], "wait": 30})
        until(lambda: waiters(serving), "somebody to wait")
        serving.queue.log(claim, 2, [LogChunk("out", "four\n")])
        assert [each["text"] for each in more.result().json()["entries"]] == ["four\n"]
        end = pool.submit(client.get, path, params={"after": more.result().json()["next"], "wait": 30})
        serving.queue.finish([(claim, Outcome(exit_code=0))])
        assert (end.result().json()["entries"], end.result().json()["ended"]) == ([], True)


@pytest.mark.full("takes 3 s")
def test_a_client_that_goes_away_is_not_waited_for(serving: Serving) -> None:
    run, before = serving.submit(), waiters(serving)
    with serving.client(timeout=httpx.Timeout(40, read=0.3)) as client, pytest.raises(httpx.ReadTimeout):
        client.get(f"/runs/{run}", params={"wait": 60})
    until(lambda: waiters(serving) <= before, "the server to notice")


@pytest.mark.full("takes 2 s")
def test_whoever_waits_at_a_server_that_ends_is_answered(make_serving: Callable[..., Serving], valkey: Server) -> None:
    serving = make_serving(valkey)
    run, before = serving.submit(), waiters(serving)
    with serving.client() as client, ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(client.get, f"/runs/{run}", params={"wait": 60}) for _ in range(8)]
        until(lambda: waiters(serving) >= before + 8, "all to wait")
        began = time.monotonic()
        serving.signal(signal.SIGTERM)
        assert [each.result().status_code for each in answers] == [200] * 8

    assert time.monotonic() - began < 8
    assert serving.process is not None
    assert serving.process.returncode == 0


@pytest.mark.full("takes 3 s")
def test_a_restart_of_redis_under_load_is_no_error_to_those_who_wait_and_loses_nothing(
    make_serving: Callable[..., Serving], durable: Server
) -> None:
    """Submits that were answered are there; those that were not are sent again with their key, and are there once."""
    serving = make_serving(durable)
    waited = serving.submit()
    with serving.client() as client, ThreadPoolExecutor(12) as pool:
        waits = [pool.submit(client.get, f"/runs/{waited}", params={"wait": 20}) for _ in range(8)]
        until(lambda: waiters(serving) >= 9, "all to wait")

        def submit(number: int) -> str:
            while True:
                body = {**COMMAND, "queue": "load", "name": f"n{number}"}
                answer = client.post("/runs", json=body, headers={"idempotency-key": f"k{number}"})
                if answer.status_code < 300:
                    return str(answer.json()["id"])
                assert (answer.status_code, "retry-after" in answer.headers) == (503, True)
                time.sleep(0.05)  # as it was told to, only sooner

        load = [pool.submit(submit, number) for number in range(150)]
        until(lambda: sum(each.done() for each in load) > 20, "some to be in")
        durable.signal(signal.SIGKILL)
        until(lambda: client.get("/ready").status_code == 503, "the server to notice")
        durable.start()
        ids = [each.result() for each in load]
        until(lambda: client.get("/ready").status_code == 200, "the server to be of use again")
        serving.queue.cancel(waited)
        assert {(each.result().status_code, each.result().json()["state"]) for each in waits} == {(200, "cancelled")}
        found = client.get("/runs", params={"queue": "load", "limit": 1000}).json()["runs"]

    assert len(set(ids)) == 150
    assert sorted(each["id"] for each in found) == sorted(ids)


@pytest.mark.full("takes 4 s")
def test_two_servers_of_which_one_is_killed_under_load_lose_and_double_nothing(
    make_serving: Callable[..., Serving], valkey: Server
) -> None:
    one = make_serving(valkey)
    two = make_serving(valkey, namespace=one.settings.namespace)
    with one.client() as first, two.client() as second, ThreadPoolExecutor(8) as pool:

        def submit(number: int) -> str:
            """To the one, and when that is gone, the same to the other."""
            for client in (first, second):
                try:
                    body, headers = {**COMMAND, "queue": "load"}, {"idempotency-key": f"k{number}"}
                    answer = client.post("/runs", json=body, headers=headers)
                    assert answer.status_code in (200, 201)
                    return str(answer.json()["id"])
                except httpx.TransportError:
                    continue
            raise AssertionError("the other server is there")

        load = [pool.submit(submit, number) for number in range(300)]
        until(lambda: sum(each.done() for each in load) > 60, "some to be in")
        one.signal(signal.SIGKILL)
        ids = [each.result() for each in load]
        found = second.get("/runs", params={"queue": "load", "limit": 1000}).json()["runs"]

    assert sorted(each["id"] for each in found) == sorted(set(ids))
    assert len(set(ids)) == 300
    assert one.submit(), "and the store is as ever"
