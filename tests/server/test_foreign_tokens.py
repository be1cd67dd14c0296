"""Runners' own tokens: each is good for what its runner holds, and for nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from foreign import PROFILE, Parties
from servers import Server
from serving import Serving

from agentq.coordinator.tokens import Tokens


@pytest.fixture
def guarded(valkey: Server, make_serving: Callable[..., Serving]) -> Iterator[Serving]:
    serving = make_serving(valkey, "--require-tokens")
    yield serving
    serving.stop_process()


def runners_token(serving: Serving, name: str) -> str:
    return Tokens(serving.store).new(name, ["work"], kind="runner")[1]


def test_a_runners_token_touches_nothing_of_another_runner(guarded: Serving) -> None:
    parties = Parties(guarded)
    tokens = [runners_token(guarded, name) for name in ("one", "two")]
    one, two = parties.hand(token=tokens[0]), parties.hand(token=tokens[1], hostname="host-2")
    client = parties.client(guarded.token("submit", "read"))
    run = client.start()
    path = f"/runner/runs/{run['run_id']}"
    assert one.take()["run_id"] == run["run_id"]

    said = {"event_type": "result", "result_text": "mine"}
    for answer in (
        two.http.get("/runner/runs", params={"runner_id": one.id}),
        two.http.post("/runner/heartbeat", json={"runner_id": one.id}),
        two.http.post(f"{path}/completed", json={"runner_id": one.id}),
        two.http.delete(f"/runners/{one.id}?self=true"),
        two.http.post("/runner/register", json=PROFILE),
        two.http.post(f"/sessions/{run['session_id']}/events", json=said),
        two.http.post(f"/sessions/{run['session_id']}/bind", json={"executor_session_id": "x"}),
        two.http.patch(f"/sessions/{run['session_id']}/metadata", json={"hostname": "x"}),
        two.http.get(f"/sessions/{run['session_id']}"),
        two.http.get(f"/sessions/{run['session_id']}/result"),
        one.http.get("/runs"),
        one.http.post("/runs", json={"type": "start_session", "parameters": {"prompt": "x"}}),
    ):
        assert answer.status_code == 403, (answer.request.url, answer.text)
    two.report(run["run_id"], "completed")
    assert client.status(run["run_id"]) == "running"

    assert one.http.post(f"/sessions/{run['session_id']}/events", json=said).status_code == 201
    assert one.http.get(f"/sessions/{run['session_id']}").status_code == 200
    one.report(run["run_id"], "completed", session_status="finished")
    assert client.result(run["session_id"]).json()["result"] == "mine"
    for party in (one, two, client):
        party.http.close()
