"""What goes wrong in the system that these runners come from, and does not here: the list in runner-protocol.md.

On a real server, with runners that know nothing of it. What concerns the core alone is in test_runner_defects.py, what
a runner does with its processes (13, 15) in test_example_runner.py.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from foreign import PROFILE, Client, Dialect, Hand, Parties
from servers import Server, until
from serving import Serving

QUICK = {"RUNNER_POLL_TIMEOUT": "1", "RUNNER_HEARTBEAT_INTERVAL": "0.4", "RUNNER_HEARTBEAT_TIMEOUT": "1"}
LOST_S = 15
BOTH: list[Dialect] = ["a", "c"]


@pytest.fixture(scope="module")
def serving(valkey: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A server whose runners are lost after two seconds."""
    serving = Serving(valkey, tmp_path_factory.mktemp("foreign"), environment=QUICK).start()
    yield serving
    serving.stop()
    serving.check()


def connection_that_polls(serving: Serving, runner: str) -> socket.socket:
    """A poll of which nobody reads the answer."""
    link = socket.create_connection(("127.0.0.1", serving.port), timeout=10)
    link.sendall(f"GET /runner/runs?runner_id={runner} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    return link


def is_polling(serving: Serving, runner: str) -> bool:
    key = serving.store.key(0, "runner", runner)
    return serving.store.connection.command("HGET", key, "polls_until_ms") is not None


def events_of(serving: Serving, run: str) -> list[str]:
    with serving.client() as http:
        page = http.get(f"/runs/{run}").json()
    return [f"{each['attempt']} {each['verb']}" for each in page["attempts"]]


# 1: lost claim


def test_nothing_is_claimed_for_a_client_that_has_gone(serving: Serving, parties: Parties) -> None:
    """Defect 1."""
    runner, client = parties.hand(), parties.client()
    link = connection_that_polls(serving, runner.id)
    until(lambda: is_polling(serving, runner.id), "the poll to be held")
    link.close()
    until(lambda: not is_polling(serving, runner.id), "the server to notice")

    run = client.start()["run_id"]

    assert client.status(run) == "pending"
    assert runner.run()["run_id"] == run
    assert events_of(serving, run) == ["1 None"]


@pytest.mark.parametrize("dialect", BOTH)
def test_a_run_whose_delivery_was_lost_is_given_again(serving: Serving, parties: Parties, dialect: Dialect) -> None:
    """Defect 1: the answer went out and was never read."""
    runner, client = parties.hand(dialect), parties.client()
    link = connection_that_polls(serving, runner.id)
    until(lambda: is_polling(serving, runner.id), "the poll to be held")
    run = client.start(dialect)["run_id"]
    until(lambda: client.status(run) == "claimed", "the run to be delivered")
    link.close()

    assert runner.run()["run_id"] == run
    runner.report(run, "started")
    assert runner.poll() is None
    assert events_of(serving, run) == ["1 None"]


# 2: the start hook


def a_hook(client: Client, on_error: str = "continue") -> None:
    hook = {"type": "agent", "agent_name": "gate", "on_error": on_error, "timeout_seconds": 60}
    for body in ({"name": "gate"}, {"name": "worker-bee", "hooks": {"on_run_start": hook}}):
        client.http.delete(f"/agents/{body['name']}")
        assert client.http.post("/agents", json=body).status_code == 201


def answered(runner: Hand, answer: dict[str, Any]) -> None:
    """The runner executes the hook that the run waits for."""
    asked = runner.take()
    assert (asked["agent_name"], asked["prompt"]) == ("gate", "do it")
    told = {"event_type": "result", "result_data": answer}
    assert runner.http.post(f"/sessions/{asked['session_id']}/events", json=told).status_code == 201
    runner.report(asked["run_id"], "completed", session_status="finished")


def test_the_one_runner_executes_the_hook_that_its_run_waits_for(parties: Parties) -> None:
    """Defect 2: a hook is a run like others; no poll is held for it."""
    runner, client = parties.hand(), parties.client()
    a_hook(client)
    run = client.start(agent_name="worker-bee")["run_id"]

    answered(runner, {"action": "continue", "parameters": {"prompt": "do it well"}})
    given = runner.take()

    assert (given["run_id"], given["parameters"]) == (run, {"prompt": "do it well"})
    runner.report(run, "completed")
    assert client.status(run) == "completed"


def test_a_hook_can_forbid_a_run(parties: Parties) -> None:
    """Defect 2."""
    runner, client = parties.hand(), parties.client()
    a_hook(client)
    run = client.start(agent_name="worker-bee")["run_id"]

    answered(runner, {"action": "block", "block_reason": "not today"})

    assert runner.poll() is None
    found = client.http.get(f"/runs/{run}").json()
    assert (found["status"], found["error"]) == ("failed", "not today")


# 3: stop of a resumed session


@pytest.mark.parametrize("say", ["run", "session"])
def test_a_stop_reaches_the_turn_that_runs_now(parties: Parties, say: str) -> None:
    """Defect 3."""
    runner, client = parties.hand(), parties.client()
    session = client.start()["session_id"]
    runner.report(runner.take()["run_id"], "completed", session_status="finished")
    second = client.resume(session)["run_id"]
    runner.take()

    path = f"/runs/{second}/stop" if say == "run" else f"/sessions/{session}/stop"
    told = client.http.post(path).json()

    assert (told["ok"], told["run_id"], told["status"]) == (True, second, "stopping")
    assert client.session(session) == "stopping"
    assert runner.poll() == {"stop_sessions": [session]}
    runner.report(second, "stopped", signal="SIGTERM")
    assert (client.status(second), client.session(session)) == ("stopped", "stopped")


# 4 and 5: a lost runner; guards


def test_what_a_lost_runner_held_runs_elsewhere_and_all_say_so(parties: Parties) -> None:
    """Defect 4; and 5: the lost one's word changes nothing any more, and it is told to stop."""
    lost, client = parties.hand("a"), parties.client()
    run = client.start("a")["run_id"]
    lost.take()
    assert client.status(run) == "running"

    until(lambda: client.status(run) == "pending", "the runner to be lost", LOST_S)
    assert lost.id not in {each["runner_id"] for each in client.http.get("/runners").json()["runners"]}
    other = parties.hand("a")
    other.take()
    found = client.http.get(f"/runs/{run}").json()
    assert (found["status"], found["runner_id"]) == ("running", other.id)

    assert lost.beat().status_code == 200
    assert lost.poll() == {"stop_runs": [run]}
    lost.report(run, "failed", error="late")
    assert client.status(run) == "running"
    other.report(run, "completed", status="success")
    assert client.status(run) == "completed"


@pytest.mark.parametrize("late", ["completed", "failed", "stopped", "started"])
def test_what_is_said_after_the_end_or_by_others_changes_nothing(parties: Parties, late: str) -> None:
    """Defect 5."""
    runner, other, client = parties.hand("a"), parties.hand("a"), parties.client()
    run = client.start("a")["run_id"]
    runner.take()

    other.report(run, late)
    assert client.status(run) == "running"

    runner.report(run, "failed", error="broken")
    runner.report(run, late)
    assert client.status(run) == "failed"


# 6, 8 and 9: a restart


def test_no_runner_notices_a_restart_of_the_server_and_runs_keep_their_order(
    serving: Serving, parties: Parties
) -> None:
    """Defects 6 and 8."""
    runner, client = parties.hand(), parties.client()
    first = client.start()["run_id"]
    runner.take()
    waiting = [client.start()["run_id"] for _ in range(3)]

    serving.stop_process()
    serving.start()

    assert runner.poll() is None
    assert runner.beat().status_code == 200
    assert client.status(first) == "running"
    order = []
    runner.report(first, "completed")
    for _ in waiting:
        order.append(runner.take()["run_id"])
        runner.report(order[-1], "completed")
    assert order == waiting


def test_a_run_that_nobody_takes_waits_and_says_for_what(serving: Serving, parties: Parties) -> None:
    """Defect 9: it does not fail by itself, unless that was asked for (see test_foreign_timing.py)."""
    parties.hand()
    client = parties.client()
    run = client.start(additional_demands={"tags": ["gpu"]})["run_id"]

    found = client.http.get(f"/runs/{run}").json()
    why = client.http.get(f"/runs/{run}/why").json()

    assert (found["status"], found["timeout_at"]) == ("pending", None)
    assert "tag.gpu" in json.dumps(why)
    assert serving.records.get(run).spec.expires_ms is None


# 7: coming back


def test_a_crashed_runner_comes_back_at_once_and_its_runs_with_it(parties: Parties) -> None:
    """Defect 7."""
    crashed, client = parties.hand(), parties.client()
    run = client.start()["run_id"]
    crashed.take()
    crashed.http.close()

    until(lambda: register(client).status_code == 200, "its last poll to be a while ago", 10)

    back = parties.hand()
    assert back.id == crashed.id
    again = back.take()
    assert again["run_id"] == run
    assert events_of_attempts(client, run) == ["lose", None]


def register(client: Client) -> httpx.Response:
    return client.http.post("/runner/register", json=PROFILE)


def events_of_attempts(client: Client, run: str) -> list[str | None]:
    return [each["verb"] for each in client.http.get(f"/runs/{run}").json()["attempts"]]


def test_an_identity_that_polls_at_this_moment_is_not_given_away(serving: Serving, parties: Parties) -> None:
    """Defect 7: the second live process does not get it either."""
    runner, client = parties.hand(), parties.client()
    link = connection_that_polls(serving, runner.id)
    until(lambda: is_polling(serving, runner.id), "the poll to be held")

    refused = register(client)

    assert refused.status_code == 409
    detail = refused.json()["detail"]
    assert (detail["error"], detail["runner_id"], detail["hostname"]) == ("duplicate_runner", runner.id, "host-1")
    link.close()
    until(lambda: register(client).status_code == 200, "the place to be free", 5)


# 10 and 11: callbacks


def a_child(client: Client, parent: str) -> str:
    return str(client.start(parent_session_id=parent, execution_mode="async_callback")["run_id"])


def done(runner: Hand, run: dict[str, Any], result: str) -> None:
    told = {"event_type": "result", "result_text": result}
    assert runner.http.post(f"/sessions/{run['session_id']}/events", json=told).status_code == 201
    runner.report(run["run_id"], "completed", session_status="finished")


def test_a_parent_is_told_of_every_child_though_a_turn_of_it_failed(parties: Parties) -> None:
    """Defects 10 and 11: nothing is swallowed, and what the parent had resulted in can still be read."""
    runner, client = parties.hand(), parties.client()
    parent = client.start()["session_id"]
    done(runner, runner.take(), "the plan")
    child = a_child(client, parent)
    done(runner, runner.take(), "first answer")

    turn = runner.take()
    assert turn["session_id"] == parent
    assert turn["parameters"]["prompt"] == (
        f'<agent-callback session="{client.http.get(f"/runs/{child}").json()["session_id"]}" status="completed">\n'
        "## Child Result\n\nfirst answer\n</agent-callback>\n\n"
        "Please continue with the orchestration based on this result."
    )
    runner.report(turn["run_id"], "failed", error="No live executor process")
    assert client.result(parent).json()["result"] == "the plan"

    a_child(client, parent)
    done(runner, runner.take(), "second answer")
    assert "second answer" in runner.take()["parameters"]["prompt"]


def test_a_busy_parent_is_told_of_its_children_together_when_it_is_free(parties: Parties) -> None:
    """Defect 10."""
    runner, client = parties.hand(tags=["slots=3"]), parties.client()
    parent = client.start()
    busy = runner.take()
    for _ in range(2):
        a_child(client, parent["session_id"])
    children = [runner.take(), runner.take()]
    done(runner, children[0], "one")
    runner.report(children[1]["run_id"], "failed", error="broke")
    assert runner.poll() is None

    done(runner, busy, "the plan")

    prompt = runner.take()["parameters"]["prompt"]
    assert prompt.startswith('<agent-callback type="aggregated" count="2">\n')
    for part in (f"### Child: {children[0]['session_id']} (status: completed)", "one",
                 f"### Child: {children[1]['session_id']} (status: failed)", "broke"):  # fmt: skip
        assert part in prompt


# 12: a busy session


def test_turns_of_a_busy_session_wait_in_their_order(parties: Parties) -> None:
    """Defect 12."""
    runner, client = parties.hand(tags=["slots=4"]), parties.client()
    session = client.start()["session_id"]
    first = runner.take()
    turns = [client.resume(session, f"turn {number}")["run_id"] for number in range(3)]
    assert runner.poll() is None
    runner.report(first["run_id"], "completed", session_status="idle")

    for turn in turns:
        run = runner.take()
        assert (run["run_id"], run["type"]) == (turn, "resume_session")
        runner.report(turn, "completed", session_status="idle")
    assert client.session(session) == "idle"


# 14: concurrency


@pytest.mark.parametrize(("fields", "most"), [({}, 1), ({"tags": ["slots=2"]}, 2), ({"slots": 3}, 3)])
def test_a_runner_gets_as_many_runs_as_it_has_room_for(parties: Parties, fields: dict[str, Any], most: int) -> None:
    """Defect 14: one at a time unless it says more."""
    runner, client = parties.hand(**fields), parties.client()
    runs = [client.start()["run_id"] for _ in range(most + 1)]

    taken = [runner.take()["run_id"] for _ in range(most)]

    assert taken == runs[:most]
    assert runner.poll() is None
    runner.report(taken[0], "completed")
    assert runner.take()["run_id"] == runs[most]


# 16: replay


def test_a_dashboard_that_comes_back_misses_nothing(serving: Serving, parties: Parties) -> None:
    """Defect 16."""
    runner, client = parties.hand(), parties.client()
    session = client.start()["session_id"]
    seen = read_sse(serving, {}, lambda found: len(found) >= 1, f"/sse/sessions?session_id={session}")
    assert [each["event"] for each in seen] == ["init"]
    assert seen[0]["data"]["sessions"][0]["session_id"] == session
    done(runner, runner.take(), "the answer")

    last = {"last-event-id": seen[0]["id"]}
    again = read_sse(serving, last, lambda found: len(found) == 4, f"/sse/sessions?session_id={session}")

    assert [each["event"] for each in again] == ["session_updated"] * 2 + ["event", "session_updated"]
    assert again[2]["data"]["data"]["result_text"] == "the answer"
    assert [each["id"].split("-")[1] for each in again] == ["sup", "sup", "evt", "sup"]
    assert again[3]["data"]["session"]["status"] == "finished"


def read_sse(
    serving: Serving, headers: dict[str, str], enough: Callable[[list[dict[str, Any]]], bool], path: str
) -> list[dict[str, Any]]:
    """Events up to where it is enough."""
    found: list[dict[str, Any]] = []
    with serving.client(timeout=10) as http, http.stream("GET", path, headers=headers) as answer:
        one: dict[str, Any] = {}
        for line in answer.iter_lines():
            name, _, value = line.partition(": ")
            if line == "" and "data" in one:
                found.append(one)
                one = {}
                if enough(found):
                    break
            elif name in ("id", "event"):
                one[name] = value
            elif name == "data":
                one["data"] = json.loads(value)
    return found


def test_all_events_of_a_session_can_be_read(parties: Parties) -> None:
    """Defect 16."""
    client = parties.client()
    session = client.start()["session_id"]
    for number in range(120):
        told = {"event_type": "message", "role": "assistant", "content": f"{number}"}
        assert client.http.post(f"/sessions/{session}/events", json=told).status_code == 201

    page = client.http.get(f"/sessions/{session}/events", params={"limit": 70}).json()
    rest = client.http.get(f"/sessions/{session}/events", params={"after": page["next"]}).json()

    assert [each["content"] for each in page["events"] + rest["events"]] == [str(number) for number in range(120)]
    assert rest["next"] is None


# 17: secrets


def test_nothing_that_a_request_brings_is_expanded(parties: Parties) -> None:
    """Defect 17."""
    runner, client = parties.hand(), parties.client()
    servers = {"files": {"url": "http://x/${params.where}", "auth": "${env.HOME}", "key": "${scope.key}"}}
    client.http.delete("/agents/curious")
    assert client.http.post("/agents", json={
        "name": "curious", "mcp_servers": servers,
        "parameters_schema": {"type": "object", "properties": {"prompt": {}, "where": {}}},
    }).status_code == 201  # fmt: skip
    asked = {"prompt": "look", "where": "${env.HOME} ${params.prompt}"}
    run = client.start(agent_name="curious", parameters=asked, scope={"key": "s3cret"})["run_id"]

    given = runner.take()

    assert given["resolved_agent_blueprint"]["mcp_servers"]["files"] == {
        "url": "http://x/${env.HOME} ${params.prompt}",
        "auth": "${env.HOME}",
        "key": "s3cret",
    }
    assert "s3cret" not in client.http.get(f"/runs/{run}").text
    client.http.delete("/agents/curious")


# 18: agents


def test_an_agent_that_is_unknown_or_inactive_is_refused(parties: Parties) -> None:
    """Defect 18; as long as no blueprint is stored, names are the runners' own business."""
    client = parties.client()
    for each in client.http.get("/agents").json()["agents"]:
        client.http.delete(f"/agents/{each['name']}")
    assert client.http.post("/runs", json=asking("anything")).status_code == 201
    assert client.http.post("/agents", json={"name": "researcher"}).status_code == 201

    refused = client.http.post("/runs", json=asking("reasearcher"))
    assert refused.status_code == 400
    assert "Did you mean researcher?" in refused.json()["detail"]
    assert client.http.post("/runs", json=asking("researcher")).status_code == 201

    assert client.http.patch("/agents/researcher/status", json={"status": "inactive"}).status_code == 200
    assert client.http.post("/runs", json=asking("researcher")).status_code == 400
    client.http.delete("/agents/researcher")


def asking(agent: str) -> dict[str, Any]:
    return {"type": "start_session", "agent_name": agent, "parameters": {"prompt": "x"}}


def test_a_new_run_is_picked_up_within_milliseconds(serving: Serving, parties: Parties) -> None:
    """No half second between two looks: the poll is woken."""
    runner, client = parties.hand(), parties.client()
    came: list[float] = []

    def take_one() -> None:
        runner.take()
        came.append(time.monotonic())

    for _ in range(5):
        thread = threading.Thread(target=take_one)
        thread.start()
        until(lambda: is_polling(serving, runner.id), "the poll")
        began = time.monotonic()
        run = client.start()["run_id"]
        thread.join()
        came[-1] -= began
        runner.report(run, "completed")

    assert sorted(came)[0] < 0.25
