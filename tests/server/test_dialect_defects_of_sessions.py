"""The second half of the list: sessions, callbacks, room, replay, secrets, agents. See test_dialect_defects.py."""

from __future__ import annotations

import json
import statistics
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import JsonValue
from support.dialect_runner import Client, Parties, SteppedRunner, is_polling
from support.http_servers import Serving
from support.servers import until

from agentq.coordinator.bounds import PROMPT_BYTES
from agentq.coordinator.queues.queues import Queues


@pytest.fixture(scope="module")
def serving(hasty: Serving) -> Serving:
    return hasty


# 10 and 11: callbacks


def a_child(client: Client, parent: str) -> str:
    return str(client.start(parent_session_id=parent, execution_mode="async_callback")["run_id"])


def done(runner: SteppedRunner, run: dict[str, Any], result: str) -> None:
    told = {"event_type": "result", "result_text": result}
    assert runner.http.post(f"/sessions/{run['session_id']}/events", json=told).status_code == 201
    runner.report(run["run_id"], "completed", session_status="finished")


@pytest.mark.full("takes 2 s")
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


@pytest.mark.parametrize("content", [5, {"type": "text"}, [{"type": "text", "text": 5}, "x", None], "said"])
def test_a_run_ends_whatever_shape_its_messages_had(parties: Parties, content: JsonValue) -> None:
    runner, client = parties.hand(), parties.client()
    client.start()
    run = runner.take()
    told = {"event_type": "message", "role": "assistant", "content": content}
    assert runner.http.post(f"/sessions/{run['session_id']}/events", json=told).status_code == 201

    runner.report(run["run_id"], "completed")

    found = client.http.get(f"/runs/{run['run_id']}/result").json()
    assert found.get("result") == ("said" if content == "said" else None)


def test_a_parent_is_told_of_its_children_however_much_they_say_in_all(parties: Parties) -> None:
    """Defect 10: together they say more than a prompt may have; nobody else's callback waits behind that for ever."""
    runner, client = parties.hand(slots=2), parties.client()
    parent = client.start()
    assert runner.take()["run_id"] == parent["run_id"]
    children = [a_child(client, parent["session_id"]) for _ in range(36)]
    for _ in children:
        done(runner, runner.take(), "\N{EURO SIGN}" * 43_000)
    runner.report(parent["run_id"], "completed", session_status="finished")

    prompt = runner.take()["parameters"]["prompt"]
    assert prompt.count("### Child: ") == len(children)
    assert len(prompt.encode()) < PROMPT_BYTES


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


@pytest.mark.full("takes 2 s")
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


@pytest.mark.full("takes 2 s")
@pytest.mark.parametrize(("fields", "most"), [({"tags": ["slots=1"]}, 1), ({"slots": 3}, 3)])
def test_a_runner_gets_as_many_runs_as_it_has_room_for(parties: Parties, fields: dict[str, Any], most: int) -> None:
    """Defect 14: no more than it says; as many as there are if it says nothing."""
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
    again = read_sse(serving, last, lambda found: len(found) == 6, f"/sse/sessions?session_id={session}")

    assert [each["event"] for each in again] == [
        *("session_updated", "session_updated", "event"),
        *("event", "session_updated", "event"),
    ]
    told = [each["data"]["data"] for each in again if each["event"] == "event"]
    assert [each["event_type"] for each in told] == ["run_start", "result", "run_completed"]
    assert told[1]["result_text"] == "the answer"
    assert [each["id"].split("-")[1] for each in again] == ["sup", "sup", "evt", "evt", "sup", "evt"]
    assert again[4]["data"]["session"]["status"] == "finished"


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
        "name": "curious", "mcp_servers": servers, "system_prompt": "The key is ${scope.key}.",
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
    record = client.http.post("/records/runs", json={"ids": [run]})
    assert run in record.json()["runs"]
    for told in (client.http.get(f"/runs/{run}"), record, client.http.get(f"/sessions/{given['session_id']}/turns")):
        assert "s3cret" not in told.text
    client.http.delete("/agents/curious")


# 18: agents


@pytest.mark.full("takes 2 s")
def test_an_agent_that_is_unknown_or_inactive_is_refused(parties: Parties) -> None:
    """Defect 18; as long as no blueprint is stored, names are the runners' own business."""
    client = parties.client()
    for each in client.http.get("/agents").json():
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


def test_what_is_refused_at_the_last_moment_leaves_no_session(serving: Serving, parties: Parties) -> None:
    client, queues = parties.client(), Queues(serving.store)
    hook = {"on_run_finish": {"type": "agent", "agent_name": "nobody"}}
    client.http.delete("/agents/hooked")
    assert client.http.post("/agents", json={"name": "hooked", "hooks": hook}).status_code == 201
    body = {"type": "start_session", "session_name": "once", "prompt": "x"}
    assert client.http.post("/runs", json={**body, "agent_name": "hooked"}).status_code == 400
    client.http.delete("/agents/hooked")
    queues.drain("shut")
    assert client.http.post("/runs", json={**body, "queue": "shut"}).status_code in (409, 503)

    assert client.session("once") == "not_existent"
    assert client.http.post("/runs", json=body).status_code == 200


def test_a_runner_that_is_drained_ends_what_it_has_and_is_told_to_leave(parties: Parties) -> None:
    """By the same word as our own workers, which it is one of."""
    runner, client = parties.hand(), parties.client()
    run = client.start()["run_id"]
    runner.take()

    assert client.http.post(f"/workers/{runner.id}/drain").status_code == 202
    client.start()

    assert runner.poll() is None
    runner.report(run, "completed")
    assert runner.poll() == {"deregistered": True}


@pytest.mark.full("it measures time")
def test_a_poll_that_waits_is_woken_by_a_new_run(serving: Serving, parties: Parties) -> None:
    """Most of five are answered sooner than polls could be that look every half second."""
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

    assert statistics.median(came) < 0.25
