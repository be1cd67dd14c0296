"""Lists of runs and events of sessions, as dashboards and monitors of the dialect use them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from support.dialect_runner import DETAILS, Parties, SteppedRunner
from support.http_servers import Serving
from websockets.sync.client import ClientConnection, connect

from agentq.dialects.agent_orchestrator.blueprints.store import BlueprintStore
from agentq.dialects.agent_orchestrator.runners.registry import RunnerRegistry
from agentq.dialects.agent_orchestrator.runners.server_liveness import ServerLiveness
from agentq.dialects.agent_orchestrator.sessions.event_routes import SessionMessages
from agentq.dialects.agent_orchestrator.sessions.session_list import SessionLister
from agentq.dialects.agent_orchestrator.sessions.store import DialectSessionStore
from agentq.dialects.agent_orchestrator.timing import RunnerTiming

SAID = {"event_type": "message", "role": "assistant", "content": [{"type": "text", "text": "Hello"}]}
RELEASED = {**DETAILS, "executor_profile": "coding", "executor": {"type": "autonomous", "command": "executors/echo"}}
NEWEST = {**RELEASED, "executor": {**RELEASED["executor"], "lifecycle": "persistent"}}  # type: ignore[dict-item]


@pytest.fixture(scope="module")
def serving(hasty: Serving) -> Serving:
    return hasty


def events_of(http: httpx.Client, session: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = http.get(f"/sessions/{session}/events").json()["events"]
    return found


def told_by(runner: SteppedRunner, session: str, **event: Any) -> httpx.Response:
    body = {"session_id": session, "timestamp": "2026-01-01T00:00:00Z", **event}
    return runner.http.post(f"/sessions/{session}/events", json=body)


def test_a_list_of_runs_has_what_a_dashboard_shows(parties: Parties) -> None:
    """It asks for `/runs`, with nothing else."""
    client, runner = parties.client(), parties.hand()
    made = client.start(project_dir="/srv/project", additional_demands={"tags": []})
    failed = client.start(prompt="fail")
    runner.take()
    runner.report(made["run_id"], "completed")
    runner.take()
    runner.report(failed["run_id"], "failed", error="It broke")

    answer = client.http.get("/runs").json()

    runs = {each["run_id"]: each for each in answer["runs"]}
    done, broken = runs[made["run_id"]], runs[failed["run_id"]]
    expected = {
        "type": "start_session",
        "session_id": made["session_id"],
        "agent_name": None,
        "prompt": "do it",
        "parameters": {"prompt": "do it"},
        "project_dir": "/srv/project",
        "parent_session_id": None,
        "execution_mode": "sync",
        "demands": {"executor_type": "autonomous", "tags": []},
        "status": "completed",
        "runner_id": runner.id,
        "error": None,
        "timeout_at": None,
    }
    assert {**done, **expected} == done
    assert all(done[name] for name in ("created_at", "claimed_at", "started_at", "completed_at"))
    assert (broken["status"], broken["error"]) == ("failed", "It broke")


def test_a_run_of_ours_is_in_that_list_as_theirs_are(parties: Parties) -> None:
    """Or a dashboard breaks at the first that has no id that it knows."""
    http = parties.client().http
    made = http.post("/runs", json={"kind": "command", "argv": ["true"]}).json()["id"]

    found = next(each for each in http.get("/runs").json()["runs"] if each["id"] == made)

    assert (found["run_id"], found["status"], found["type"]) == (made, "pending", "start_session")
    assert found["session_id"].startswith("ses_")


def test_our_own_lists_of_runs_are_in_our_own_words(parties: Parties) -> None:
    client = parties.client()
    made = client.start()["run_id"]

    page = client.http.get("/runs", params={"limit": 10, "state": "pending"}).json()

    found = next(each for each in page["runs"] if each["id"] == made)
    assert "session_id" not in found
    assert found["demands"]["agent.claude"] == "ready"


@pytest.mark.parametrize("registration", [RELEASED, NEWEST], ids=["releases", "newest"])
def test_the_server_tells_that_a_run_began_and_that_it_is_done(parties: Parties, registration: dict[str, Any]) -> None:
    runner, client = parties.hand(**registration), parties.client()
    made = client.start()
    session = made["session_id"]
    runner.take()
    told_by(runner, session, **SAID)
    runner.report(made["run_id"], "completed", session_status="idle")

    told = events_of(client.http, session)

    assert [each["event_type"] for each in told] == ["run_start", "message", "run_completed"]
    assert {each["run_id"] for each in told} == {made["run_id"]}
    assert (told[2]["exit_code"], told[2]["reason"], told[2]["session_id"]) == (0, "completed", session)
    assert client.session(session) == "idle"


def test_where_the_executor_tells_it_the_server_does_not(parties: Parties) -> None:
    runner, client = parties.hand("b"), parties.client()
    made = client.start("b")
    runner.take()
    told_by(runner, made["session_id"], event_type="run_completed")
    runner.report(made["run_id"], "completed")

    assert [each["event_type"] for each in events_of(client.http, made["session_id"])] == ["run_completed"]


def test_a_failed_run_is_not_said_to_be_done(parties: Parties) -> None:
    runner, client = parties.hand(), parties.client()
    made = client.start()
    runner.take()
    runner.report(made["run_id"], "failed", error="It broke")

    assert [each["event_type"] for each in events_of(client.http, made["session_id"])] == ["run_start"]


def test_events_are_found_by_the_session_alone(parties: Parties) -> None:
    """As the dashboards of the older dialects ask: `GET /events/{session}`."""
    runner, client = parties.hand("b"), parties.client()
    session = client.start("b")["session_id"]
    runner.take()
    told_by(runner, session, **SAID)

    assert client.http.get(f"/events/{session}").json() == {"events": events_of(client.http, session)}
    assert client.http.get("/events/none").json() == {"events": []}


def test_an_event_is_told_without_its_session_in_the_path(parties: Parties) -> None:
    """As hooks of the oldest dialects tell it; the first of a session begins it."""
    http = parties.client().http
    session = "0b3c7d1e-0000-4000-8000-000000000001"
    begun = {"event_type": "session_start", "session_id": session, "session_name": "hooked", "timestamp": "2026-01-01"}

    assert http.post("/events", json=begun).json() == {"ok": True}
    said = {**SAID, "session_id": session, "session_name": "hooked", "timestamp": "2026-01-01"}
    assert http.post("/events", json=said).json() == {"ok": True}

    assert [each["event_type"] for each in http.get(f"/events/{session}").json()["events"]] == [
        "session_start",
        "message",
    ]
    assert http.get("/sessions/by-name/hooked").json()["session"]["session_id"] == session
    assert http.post("/events", json={**said, "session_id": "none"}).status_code == 404
    assert http.delete(f"/sessions/{session}").status_code == 200


@pytest.fixture
def line(serving: Serving) -> Iterator[ClientConnection]:
    with connect(serving.url.replace("http", "ws", 1) + "/ws", open_timeout=20) as opened:
        yield opened


def heard(line: ClientConnection) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(line.recv(timeout=20))
    return told


def test_a_dashboard_of_the_oldest_dialect_hears_over_a_websocket(parties: Parties, line: ClientConnection) -> None:
    first = heard(line)
    assert (first["type"], type(first["sessions"])) == ("init", list)
    runner, client = parties.hand("b"), parties.client()
    session = client.start("b")["session_id"]
    created = heard(line)
    assert (created["type"], created["session"]["session_id"]) == ("session_created", session)
    runner.take()
    told_by(runner, session, **SAID)

    message = None
    while message is None or message["type"] == "session_updated":
        message = heard(line)
        assert message.get("session", {"session_id": session})["session_id"] == session
    assert (message["type"], message["data"]["content"]) == ("event", SAID["content"])


def test_a_session_that_was_read_before_its_executor_gave_it_an_id_is_told_of_under_that_id(
    parties: Parties, serving: Serving
) -> None:
    runner, client = parties.hand("a"), parties.client()
    name = client.start("a")["session_name"]
    runner.take()
    given = "0b3c7d1e-0000-4000-8000-000000000003"
    shelf, conversing = BlueprintStore(serving.store), DialectSessionStore(serving.store)
    roster = RunnerRegistry(serving.store, serving.settings, RunnerTiming(), shelf, ServerLiveness(serving.store))
    line, read = SessionMessages(SessionLister(roster, conversing)), conversing.describe(name)
    assert list(line._translate_event("session_updated", {"session": read})) == []

    runner.http.post("/sessions", json={"session_id": given, "session_name": name, "project_dir": "/srv/project"})

    (created,) = line._translate_event("session_updated", {"session": read})
    assert (created["type"], created["session"]["session_id"]) == ("session_created", given)
    client.http.post(f"/sessions/{given}/stop")
    runner.poll()


def test_a_session_that_its_executor_begins_is_told_of_once_that_has_begun(
    parties: Parties, line: ClientConnection
) -> None:
    """Under the id that the executor gave it, and under no other."""
    heard(line)
    runner, client = parties.hand("a"), parties.client()
    name = client.start("a")["session_name"]
    runner.take()
    given = "0b3c7d1e-0000-4000-8000-000000000002"
    runner.http.post("/sessions", json={"session_id": given, "session_name": name, "project_dir": "/srv/project"})
    told_by(runner, given, session_name=name, **SAID)

    created, event = heard(line), heard(line)
    while event["type"] == "session_updated":
        event = heard(line)

    assert (created["type"], created["session"]["session_id"]) == ("session_created", given)
    assert (event["type"], event["data"]["session_id"]) == ("event", given)
    client.http.post(f"/sessions/{given}/stop")
    runner.poll()
