"""Dialect C: the requests of its programs, and the answers that they need."""

from __future__ import annotations

import gzip
import io
import json
import re
import tarfile
from hashlib import sha256
from typing import Any

import pytest
from support.dialect_runner import DETAILS, PROFILE, Client, Parties, SteppedRunner
from support.http_servers import Serving

SESSION_FIELDS = {
    *("session_id", "status", "created_at", "project_dir", "agent_name", "last_resumed_at", "parent_session_id"),
    *("executor_session_id", "executor_profile", "hostname"),
}


@pytest.fixture(scope="module")
def serving(hasty: Serving) -> Serving:
    return hasty


def bound(runner: SteppedRunner, session: str, executor: str = "claude-1") -> dict[str, Any]:
    """What an executor says when it has begun."""
    body = {"executor_session_id": executor, "hostname": "host-1", "executor_profile": "coding"}
    told: dict[str, Any] = runner.http.post(f"/sessions/{session}/bind", json=body).json()
    return told


def test_an_identity_has_one_id_in_all_places(parties: Parties) -> None:
    runner = parties.hand("c")
    of_c = sha256(b"host-1:/srv/project:coding:executors/echo").hexdigest()[:12]
    of_b = sha256(b"host-1:/srv/project:claude-code").hexdigest()[:12]

    assert runner.id == f"lnch_{of_c}"
    assert parties.hand("b").id == f"lnch_{of_b}"
    listed = runner.http.get("/runners").json()["runners"]
    found = next(each for each in listed if each["runner_id"] == runner.id)
    assert {name: found[name] for name in ("hostname", "project_dir", "executor_profile", "status")} == {
        **DETAILS,
        "executor_profile": "coding",
        "status": "online",
    }


def test_a_session_lives_through_a_turn_and_another(parties: Parties) -> None:
    runner, client = parties.hand(), parties.client()
    made = client.http.post(
        "/runs", json={"type": "start_session", "parameters": {"prompt": "begin"}, "project_dir": "/srv/project"}
    )
    assert made.status_code == 201
    run, session = made.json()["run_id"], made.json()["session_id"]
    assert made.json()["status"] == "pending"
    assert re.fullmatch("ses_[0-9a-f]{12}", session)
    assert client.session(session) == "pending"

    given = runner.run()
    assert (given["parameters"], given["session_id"]) == ({"prompt": "begin"}, session)
    runner.report(run, "started")
    told = bound(runner, session)
    assert (told["ok"], told["session"]["status"]) == (True, "running")
    assert told["session"].keys() >= SESSION_FIELDS
    assert client.http.get(f"/sessions/{session}/affinity").json() == {
        "affinity": {
            "session_id": session,
            "hostname": "host-1",
            "project_dir": "/srv/project",
            "executor_profile": "coding",
        }
    }
    early = client.result(session)
    assert (early.status_code, early.json()["detail"]) == (400, "Session not finished or idle")
    event = {
        "event_type": "result",
        "session_id": session,
        "timestamp": "2026-01-01T00:00:00Z",
        "result_data": {"n": 1},
    }
    assert runner.http.post(f"/sessions/{session}/events", json=event).status_code == 201
    runner.report(run, "completed", status="success", session_status="idle")
    assert client.session(session) == "idle"
    assert client.result(session).json() == {"result": '{"n": 1}', "result_text": None, "result_data": {"n": 1}}

    again = client.resume(session)
    assert again["session_id"] == session
    second = runner.take()
    assert (second["type"], second["session_id"], second["run_id"]) == ("resume_session", session, again["run_id"])
    assert second["demands"] == {
        "hostname": "host-1",
        "executor_profile": "coding",
        "executor_type": "autonomous",
        "tags": [],
    }
    runner.report(again["run_id"], "completed", session_status="finished")
    assert client.session(session) == "finished"
    fetched = client.http.get(f"/sessions/{session}").json()["session"]
    assert (fetched["executor_session_id"], fetched["status"]) == ("claude-1", "finished")
    assert session in {each["session_id"] for each in client.http.get("/sessions").json()["sessions"]}


def test_an_idle_session_is_stopped_by_its_runner_and_can_then_be_deleted(parties: Parties) -> None:
    runner, client = parties.hand(), parties.client()
    session = client.start()["session_id"]
    runner.report(runner.take()["run_id"], "completed", session_status="idle")
    busy = client.http.delete(f"/sessions/{session}")
    assert (busy.status_code, "Stop session first" in busy.json()["detail"]) == (409, True)

    assert client.http.post(f"/sessions/{session}/stop").json()["status"] == "stopping"
    assert runner.poll() == {"stop_sessions": [session]}
    told = runner.http.post(f"/runner/sessions/{session}/status", json={"runner_id": runner.id, "status": "finished"})
    assert (told.status_code, told.json(), client.session(session)) == (200, {"ok": True}, "finished")
    again = client.http.post(f"/sessions/{session}/stop").json()
    assert (again["ok"], again["status"]) == (True, "finished")

    gone = client.http.delete(f"/sessions/{session}").json()
    assert (gone["ok"], gone["deleted"]["session"]) == (True, 1)
    assert client.session(session) == "not_existent"
    assert client.http.get(f"/sessions/{session}").status_code == 404


def test_a_run_that_waits_is_stopped_at_once(parties: Parties) -> None:
    client = parties.client()
    run = client.start()

    told = client.http.post(f"/runs/{run['run_id']}/stop").json()

    assert (told["status"], told["message"]) == ("stopped", "Run cancelled before execution")
    again = client.http.post(f"/runs/{run['run_id']}/stop")
    assert (again.status_code, again.json()["status"]) == (200, "stopped")


def test_parameters_that_do_not_fit_are_refused_with_their_schema(parties: Parties) -> None:
    client = parties.client()
    refused = client.http.post("/runs", json={"type": "start_session", "parameters": {"prompt": "", "x": 1}})

    detail = refused.json()["detail"]
    assert refused.status_code == 400
    assert (detail["error"], detail["agent_name"]) == ("parameter_validation_failed", None)
    assert {each["path"] for each in detail["validation_errors"]} == {"$", "$.prompt"}
    assert detail["parameters_schema"]["required"] == ["prompt"]


def test_a_schema_without_end_refuses_what_comes_and_breaks_nothing(parties: Parties) -> None:
    http = parties.client().http
    assert http.post("/agents", json={"name": "endless", "parameters_schema": {"$ref": "#"}}).status_code == 201
    body = {"type": "start_session", "agent_name": "endless", "parameters": {"prompt": "x"}}

    assert "without end" in http.post("/runs", json=body).json()["detail"]
    http.delete("/agents/endless")


@pytest.mark.full("takes 1 s")
@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"type": "resume_session", "parameters": {"prompt": "x"}}, 400),
        ({"type": "resume_session", "session_id": "ses_000000000000", "parameters": {"prompt": "x"}}, 404),
        ({"type": "start_session"}, 422),
        ({"type": "begin", "parameters": {"prompt": "x"}}, 422),
        ({"type": "start_session", "parameters": "x"}, 422),
        ({"type": "start_session", "parameters": {"prompt": "x"}, "additional_demands": {"tags": "gpu"}}, 422),
        ({"type": "start_session", "session_id": "a/b", "parameters": {"prompt": "x"}}, 422),
    ],
)
def test_what_makes_no_sense_is_refused_and_changes_nothing(serving: Serving, parties: Parties,
                                                             body: dict[str, Any], status: int) -> None:  # fmt: skip
    before = serving.records.count()
    answer = parties.client().http.post("/runs", json=body)

    assert answer.status_code == status, answer.text
    assert answer.json()["detail"]
    assert serving.records.count() == before


def test_a_run_goes_to_a_runner_that_has_what_it_demands(parties: Parties) -> None:
    """All tags, and each property exactly; a runner that wants its tags asked for takes nothing else."""
    plain, tagged = parties.hand(), parties.hand(hostname="host-2", tags=["gpu", "big"], require_matching_tags=True)
    client = parties.client()
    wanted = client.start(additional_demands={"tags": ["big", "gpu"]})["run_id"]
    other = client.start()["run_id"]
    there = client.start(additional_demands={"hostname": "host-1", "project_dir": "/srv/project"})["run_id"]

    assert tagged.take()["run_id"] == wanted
    assert plain.take()["run_id"] == other
    tagged.report(wanted, "completed")
    assert tagged.poll() is None
    plain.report(other, "completed")
    assert plain.take()["run_id"] == there


@pytest.mark.full("takes 4 s")
def test_an_agent_that_a_runner_brings_along_is_run_there_and_nowhere_else(parties: Parties) -> None:
    owner, other = parties.hand(hostname="host-2", agents=[{"name": "special"}]), parties.hand()
    client = parties.client()
    taken = client.http.post(
        "/runner/register", json={**PROFILE, "hostname": "host-3", "agents": [{"name": "special"}]}
    )
    assert taken.status_code == 409
    assert taken.json()["detail"] | {"message": ""} == {
        "error": "agent_name_collision",
        "message": "",
        "agent_name": "special",
        "existing_runner_id": owner.id,
    }
    run = client.start(agent_name="special")["run_id"]

    assert other.poll() is None
    assert owner.take()["run_id"] == run


def test_a_procedural_agent_is_run_by_a_procedural_runner_and_not_resumed(parties: Parties) -> None:
    client = parties.client()
    client.http.delete("/agents/counter")
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    made = client.http.post("/agents", json={"name": "counter", "type": "procedural", "parameters_schema": schema})
    assert made.status_code == 201
    autonomous = parties.hand()
    procedural = parties.hand(hostname="host-4", executor={"type": "procedural", "command": "x"})
    run = client.start(agent_name="counter", parameters={"n": 3})

    assert autonomous.poll() is None
    given = procedural.take()
    assert (given["run_id"], given["parameters"]) == (run["run_id"], {"n": 3})
    procedural.report(run["run_id"], "completed")
    refused = client.http.post(
        "/runs", json={"type": "resume_session", "session_id": run["session_id"], "parameters": {"prompt": "x"}}
    )
    assert (refused.status_code, refused.json()["detail"]["error"]) == (400, "procedural_agent_no_resume")
    client.http.delete("/agents/counter")


def a_bomb() -> bytes:
    """An archive of few bytes, what stands before whose only entry is very large."""
    head = tarfile.TarInfo("agents/x.json")
    head.type, head.size = tarfile.XHDTYPE, 512 << 20
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=1) as file:
        file.write(head.tobuf())
        for _ in range(head.size >> 23):
            file.write(bytes(8 << 20))
    return packed.getvalue()


def test_blueprints_and_scripts_are_kept_told_and_carried_over(parties: Parties) -> None:
    client, runner = parties.client(), parties.hand()
    http = client.http
    for kind, body in (
        ("capabilities", {"name": "style", "text": "Be brief.", "mcp_servers": {"s": {"url": "http://s"}}}),
        ("agents", {"name": "writer", "system_prompt": "You write.", "capabilities": ["style"], "tags": ["a", "b"]}),
        ("scripts", {"name": "count", "script_file": "count.py", "script_content": "print(1)"}),
    ):
        http.delete(f"/{kind}/{body['name']}")
        assert http.post(f"/{kind}", json=body).status_code == 201
        assert http.post(f"/{kind}", json=body).status_code == 409
    assert http.get("/agents/writer").json()["system_prompt"] == "You write.\n\n---\n\nBe brief."
    assert http.get("/agents/writer?raw=true").json()["system_prompt"] == "You write."
    assert [each["name"] for each in http.get("/agents?tags=a,b").json()] == ["writer"]
    assert http.get("/agents?tags=a,c").json() == []

    assert runner.poll() == {"sync_scripts": ["count"], "remove_scripts": []}
    packed = http.get("/scripts/count/download").content
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        assert sorted(archive.getnames()) == ["count/count.py", "count/script.json"]
    archive_of_all = http.get("/config/export").content
    assert http.delete("/scripts/count").status_code == 204
    assert runner.poll() == {"sync_scripts": [], "remove_scripts": ["count"]}
    back = http.post("/config/import", content=archive_of_all)
    imported = {name: count for name, count in back.json().items() if name.endswith("_imported")}
    assert imported == {
        "agents_imported": 1,
        "capabilities_imported": 1,
        "scripts_imported": 1,
        "mcp_servers_imported": 0,
    }
    assert http.get("/scripts/count").json()["script_content"] == "print(1)"
    assert http.post("/config/import", content=b"nothing").status_code == 400
    before = parties.serving.peak_memory_kb()
    assert http.post("/config/import", content=a_bomb()).status_code == 400
    assert parties.serving.peak_memory_kb() - before < 200 << 10
    assert http.get("/agents/writer").status_code == 200
    for path in ("agents/writer", "capabilities/style", "scripts/count"):
        http.delete(f"/{path}")


def test_finish_hooks_are_told_of_what_succeeded(parties: Parties) -> None:
    client, runner = parties.client(), parties.hand()
    hook = {"type": "agent", "agent_name": "reporter"}
    for body in ({"name": "reporter"}, {"name": "doer", "hooks": {"on_run_finish": hook}}):
        client.http.delete(f"/agents/{body['name']}")
        assert client.http.post("/agents", json=body).status_code == 201
    run = client.start(agent_name="doer")
    runner.take()
    told = {"event_type": "result", "result_text": "it is done"}
    runner.http.post(f"/sessions/{run['session_id']}/events", json=told)
    runner.report(run["run_id"], "completed", session_status="finished")

    after = runner.take()
    assert (after["agent_name"], after["prompt"]) == ("reporter", "it is done")
    runner.report(after["run_id"], "completed")
    for name in ("reporter", "doer"):
        client.http.delete(f"/agents/{name}")


@pytest.mark.full("takes 1 s")
def test_metadata_can_be_changed_and_events_belong_to_their_session(parties: Parties) -> None:
    client = parties.client()
    session = client.start()["session_id"]
    changed = client.http.patch(f"/sessions/{session}/metadata", json={"hostname": "host-9", "agent_name": "x"})
    assert (changed.status_code, changed.json()["session"]["hostname"]) == (200, "host-9")
    wrong = client.http.post(f"/sessions/{session}/events", json={"event_type": "message", "session_id": "other"})
    assert wrong.status_code == 400
    assert client.http.get("/sessions/none/events").status_code == 404
    assert json.loads(client.http.get(f"/sessions/{session}/events").text) == {"events": [], "next": None}


def listed(client: Client, status: str) -> set[str]:
    return {run["run_id"] for run in client.http.get("/runs", params={"status": status}).json()["runs"]}


def test_runs_are_listed_by_the_status_that_the_dialect_has(parties: Parties) -> None:
    runner, client = parties.hand(), parties.client()
    first, second = client.start()["run_id"], client.start()["run_id"]
    assert runner.take()["run_id"] == first

    assert (first in listed(client, "running"), second in listed(client, "running")) == (True, False)
    assert (first in listed(client, "pending"), second in listed(client, "pending")) == (False, True)
    whole = next(run for run in client.http.get("/runs?status=running").json()["runs"] if run["run_id"] == first)
    assert (whole["session_id"], whole["prompt"], whole["runner_id"]) != (None, None, None)
    assert client.http.get("/runs?status=nonsense").status_code == 422
