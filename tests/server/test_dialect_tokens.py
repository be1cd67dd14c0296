"""Tokens of runners: each is valid only for what its runner holds."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.dialect_runner import PROFILE, Client, Parties, SteppedRunner
from support.http_servers import Serving
from support.servers import Server, until, valkey_binary

from agentq.coordinator.security.tokens import Tokens


@pytest.fixture
def guarded(valkey: Server, make_serving: Callable[..., Serving]) -> Iterator[Serving]:
    serving = make_serving(valkey, "--require-tokens")
    yield serving
    serving.stop_process()


def runners_token(serving: Serving, name: str) -> str:
    return Tokens(serving.store).new(name, ["work"], kind="runner")[1]


def strangers(guarded: Serving) -> tuple[list[str], SteppedRunner, SteppedRunner, Client]:
    """The tokens of two runners, these runners, and a client."""
    parties = Parties(guarded)
    tokens = [runners_token(guarded, name) for name in ("one", "two")]
    one, two = parties.hand(token=tokens[0]), parties.hand(token=tokens[1], hostname="host-2")
    return tokens, one, two, parties.client(guarded.token("submit", "read"))


@pytest.mark.full("takes 1 s")
def test_a_runners_token_touches_nothing_of_another_runner(guarded: Serving) -> None:
    _, one, two, client = strangers(guarded)
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
        two.http.post("/sessions", json={"session_id": "s-1", "session_name": "out-of-nothing"}),
        two.http.get(f"/sessions/{run['session_id']}"),
        two.http.get(f"/sessions/{run['session_id']}/result"),
        one.http.get("/runs"),
        one.http.post("/runs", json={"type": "start_session", "parameters": {"prompt": "x"}}),
    ):
        assert answer.status_code == 403, (answer.request.url, answer.text)
    two.report(run["run_id"], "completed")
    assert client.status(run["run_id"]) == "running"
    assert client.session("out-of-nothing") == "not_existent"

    assert one.http.post(f"/sessions/{run['session_id']}/events", json=said).status_code == 201
    assert one.http.get(f"/sessions/{run['session_id']}").status_code == 200
    one.report(run["run_id"], "completed", session_status="finished")
    assert client.result(run["session_id"]).json()["result"] == "mine"
    for party in (one, two, client):
        party.http.close()


@pytest.mark.full("takes 1 s")
def test_what_another_runner_has_left_idle_and_its_poll_that_waits_are_its_own(guarded: Serving) -> None:
    _, one, two, client = strangers(guarded)
    run = client.start()
    one.take()
    one.report(run["run_id"], "completed", session_status="idle")
    assert client.session(run["session_id"]) == "idle"

    gone = f"/runner/sessions/{run['session_id']}/status"
    assert two.http.post(gone, json={"runner_id": two.id, "status": "failed"}).status_code == 200
    assert client.session(run["session_id"]) == "idle"

    with ThreadPoolExecutor() as pool:
        waits = pool.submit(one.poll)
        until(lambda: waiting(guarded, one.id), "the poll to be held")
        assert two.http.get("/runner/runs", params={"runner_id": one.id}).status_code == 403
        last = client.resume(run["session_id"])
        told = waits.result(20)
    assert told is not None
    assert told["run"]["run_id"] == last["run_id"], "in the poll that was under way"

    assert one.http.post(gone, json={"runner_id": one.id, "status": "finished"}).status_code == 200
    for party in (one, two, client):
        party.http.close()


@pytest.mark.full("takes 1 s")
def test_a_runner_whose_token_is_revoked_comes_back_with_another(guarded: Serving) -> None:
    parties, tokens = Parties(guarded), [runners_token(guarded, name) for name in ("old", "new")]
    old = parties.hand(token=tokens[0])
    new = guarded.client(tokens[1])

    assert new.post("/runner/register", json=PROFILE).status_code == 403
    Tokens(guarded.store).revoke("old")
    assert new.post("/runner/register", json=PROFILE).json()["runner_id"] == old.id
    for http in (old.http, new):
        http.close()


def waiting(serving: Serving, runner: str) -> bool:
    """Whether a poll of a runner is held."""
    return bool(
        serving.store.connection.command("HGET", serving.store.key(0, "dialect_runner", runner), "polls_until_ms")
    )


@pytest.mark.full("takes 2 s")
def test_a_runner_whose_token_is_revoked_while_it_waits_gets_no_run(guarded: Serving) -> None:
    """But whoever stands behind it does, at once."""
    tokens, one, two, client = strangers(guarded)
    with ThreadPoolExecutor() as pool:
        first = pool.submit(lambda: one.http.get("/runner/runs", params={"runner_id": one.id}))
        until(lambda: waiting(guarded, one.id), "the poll to be held")
        second = pool.submit(two.run)
        until(lambda: waiting(guarded, two.id), "the other's, too")
        Tokens(guarded.store).revoke(tokens[0].split("_")[2])
        run = client.start()

        assert first.result(20).status_code == 401
        assert second.result(10)["run_id"] == run["run_id"]
    for party in (one, two, client):
        party.http.close()


@pytest.mark.full("takes 1 s")
@pytest.mark.parametrize("runner", ["lnch_0123456789ab:alive", "x" * 100])
def test_what_is_no_runners_id_becomes_no_part_of_a_key(serving: Serving, runner: str) -> None:
    parties = Parties(serving)
    one = parties.hand()
    named = runner.replace("lnch_0123456789ab", one.id)
    answers = [
        one.http.get("/runner/runs", params={"runner_id": named}),
        one.http.post("/runner/heartbeat", json={"runner_id": named}),
        one.http.post("/runner/runs/run_00000000000000000000000/completed", json={"runner_id": named}),
    ]

    assert {each.status_code for each in answers} <= {401, 422}
    assert one.http.delete(f"/runners/{named}").status_code == 404
    parties.close()


@pytest.mark.full("takes 3 s")
def test_a_poll_of_a_token_that_has_asked_too_often_is_held_and_told_nothing(hasty: Serving) -> None:
    """Refused, the runner would count errors, and give up after three."""
    parties = Parties(hasty)
    one = parties.hand(token=Tokens(hasty.store).new("often", ["work"], kind="runner", rate="1/1h")[1])

    assert [one.poll() for _ in range(2)] == [None, None]
    assert one.beat().status_code == 429
    one.http.close()


def test_a_runners_token_of_a_queue_serves_that_queue_alone(guarded: Serving) -> None:
    token = Tokens(guarded.store).new("one", ["work"], kind="runner", queues=["mine"])[1]
    parties, client = Parties(guarded), guarded.client(guarded.token("submit", "read"))
    body = {"type": "start_session", "parameters": {"prompt": "x"}}
    with guarded.client(token) as http:
        refused = [
            http.post("/runner/register", json=PROFILE | {"hostname": "a", "tags": ["queue=theirs"]}),
            http.post("/runner/register", json=PROFILE | {"hostname": "b", "queues": ["mine", "theirs"]}),
            http.get("/mcp-servers/secret"),
        ]
    one = parties.hand(token=token)
    client.post("/runs", json=body)
    mine = client.post("/runs", json=body | {"queue": "mine"}).json()

    assert [each.status_code for each in refused] == [403, 403, 403]
    taken = one.take()
    assert taken["run_id"] == mine["run_id"]
    one.report(taken["run_id"], "completed")
    assert client.get(f"/runs/{mine['run_id']}").json()["state"] == "completed"
    for http in (one.http, client):
        http.close()


def test_a_start_hook_waits_in_the_queue_of_its_run(serving: Serving) -> None:
    hook = {"type": "agent", "agent_name": "before", "on_error": "block"}
    body = {"type": "start_session", "agent_name": "main", "parameters": {"prompt": "x"}, "queue": "nightly"}
    with serving.client() as client:
        client.post("/agents", json={"name": "before"})
        client.post("/agents", json={"name": "main", "hooks": {"on_run_start": hook}})
        run = client.post("/runs", json=body).json()["run_id"]
        (before,) = serving.records.get(run).spec.after
        queues = [serving.records.get(each).spec.queue for each in (run, before)]
        for each in (run, before):
            client.post(f"/runs/{each}/cancel")

    assert queues == ["nightly", "nightly"]


@pytest.mark.full("takes 5 s")
def test_a_revoked_token_is_good_for_nothing_while_the_store_is_away_and_a_runner_is_not_told_of_it(
    folder: Path, make_serving: Callable[..., Serving]
) -> None:
    store = Server(valkey_binary(), folder / "store").start()
    try:
        guarded = make_serving(store, "--require-tokens", environment={"RUNNER_POLL_TIMEOUT": "2"})
        one = Parties(guarded).hand(token=runners_token(guarded, "one"))
        reader = guarded.client(guarded.token("read"))
        assert (one.poll(), reader.get("/runs").status_code) == (None, 200)
        store.signal(signal.SIGKILL)
        polled = one.http.get("/runner/runs", params={"runner_id": one.id})
        asked = reader.get("/workers")
    finally:
        store.stop()
    for http in (one.http, reader):
        http.close()

    assert (polled.status_code, asked.status_code) == (204, 503)


@pytest.mark.full("takes 2 s")
def test_events_of_a_session_are_bounded_in_all_and_looked_at_a_few_at_a_time(serving: Serving) -> None:
    parties = Parties(serving)
    one, client = parties.hand(), parties.client()
    run = one.take() if client.start() else {}
    path, told = f"/sessions/{run['session_id']}/events", {"event_type": "post_tool", "tool_output": "x" * 250_000}
    for number in range(140):
        assert one.http.post(path, json={**told, "number": number}).status_code == 201
    before = serving.peak_memory_kb()

    one.report(run["run_id"], "completed")
    pages: list[list[int]] = []
    after: str | None = ""
    while after is not None:
        page = client.http.get(path, params={"after": after}).json()
        pages.append([each["number"] for each in page["events"] if "number" in each])  # the others the server tells
        after = page["next"]

    numbers = [number for page in pages for number in page]
    assert numbers == list(range(140 - len(numbers), 140))
    assert 120 < len(numbers) < 135, "32 MiB"
    assert max(map(len, pages)) < 60
    assert serving.peak_memory_kb() - before < 80 << 10
    parties.close()
