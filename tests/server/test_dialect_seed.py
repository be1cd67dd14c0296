"""Dialect A: the requests of its programs, and the answers that they need."""

from __future__ import annotations

import pytest
from support.dialect_runner import Parties
from support.http_servers import Serving

RUN_FIELDS = {
    *("run_id", "type", "session_name", "agent_name", "prompt", "project_dir", "parent_session_name", "status"),
    *("runner_id", "error", "created_at", "claimed_at", "started_at", "completed_at"),
}


@pytest.mark.usefixtures("parties")
def test_a_run_goes_its_way_from_start_to_result(serving: Serving) -> None:
    with serving.client() as http:
        registered = http.post("/runner/register")
        assert registered.status_code == 200
        runner = registered.json().pop("runner_id")
        assert runner.startswith("rnr_")
        assert registered.json() == {
            "runner_id": runner,
            "poll_endpoint": "/runner/runs",
            "poll_timeout_seconds": 30,
            "heartbeat_interval_seconds": 60,
        }
        asked = {
            "type": "start_session",
            "session_name": "research-task",
            "agent_name": "researcher",
            "prompt": "Research quantum computing advances",
            "project_dir": "/path/to/project",
        }
        made = http.post("/runs", json=asked)
        run = made.json()["run_id"]
        assert (made.status_code, made.json()["status"]) == (200, "pending")
        told = serving.records.get(run).spec.env
        assert (told["AGENT_SESSION_NAME"], told["AGENT_SESSION_ID"]) == ("research-task", "research-task")
        again = http.post("/runs", json=asked)
        assert again.status_code == 409
        assert again.json()["detail"] == (
            "Session 'research-task' already exists. Please use a different session name."
        )
        found = http.get(f"/runs/{run}").json()
        assert found.keys() >= RUN_FIELDS
        assert {name: found[name] for name in asked} == asked
        assert (found["status"], found["runner_id"], found["claimed_at"]) == ("pending", None, None)

        told = http.get("/runner/runs", params={"runner_id": runner}).json()
        assert told.keys() == {"run"}
        assert told["run"].keys() >= RUN_FIELDS
        assert {name: told["run"][name] for name in asked} == asked
        assert (told["run"]["status"], told["run"]["runner_id"]) == ("claimed", runner)

        started = http.post(f"/runner/runs/{run}/started", json={"runner_id": runner})
        assert (started.status_code, started.json()) == (200, {"ok": True})
        done = http.post(f"/runner/runs/{run}/completed", json={"runner_id": runner, "status": "success"})
        assert (done.status_code, done.json()) == (200, {"ok": True})
        ended = http.get(f"/runs/{run}").json()
        assert (ended["status"], ended["runner_id"], ended["error"]) == ("completed", runner, None)
        assert ended["completed_at"].endswith("+00:00")


def test_an_executor_gives_its_session_an_id_and_tells_of_it(serving: Serving, parties: Parties) -> None:
    client, hand = parties.client(), parties.hand("a")
    run = client.start("a", session_name="talk")["run_id"]
    hand.take()
    with serving.client() as http:
        begun = http.post("/sessions", json={"session_id": "5b1f-uuid", "session_name": "talk"})
        assert begun.status_code == 200
        assert begun.json()["ok"] is True
        assert begun.json()["session"]["session_id"] == "5b1f-uuid"
        named = http.get("/sessions/by-name/talk").json()["session"]
        assert (named["session_id"], named["status"]) == ("5b1f-uuid", "running")
        early = http.get("/sessions/5b1f-uuid/result")
        assert (early.status_code, early.json()["detail"]) == (400, "Session not finished")
        for event in (
            {"event_type": "message", "role": "user", "content": [{"type": "text", "text": "Research"}]},
            {"event_type": "message", "role": "assistant", "content": [{"type": "text", "text": "Qubits."}]},
            {"event_type": "session_stop", "exit_code": 0, "reason": "done"},
        ):
            body = {"session_id": "5b1f-uuid", "session_name": "talk", "timestamp": "2026-01-01T00:00:00Z"}
            kept = http.post("/sessions/5b1f-uuid/events", json={**body, **event})
            assert (kept.status_code, kept.json()["ok"]) == (200, True)
        assert http.get("/sessions/5b1f-uuid/status").json() == {"status": "finished"}
        hand.report(run, "completed", status="success")
        assert http.get("/sessions/5b1f-uuid/result").json()["result"] == "Qubits."
        assert http.get(f"/runs/{run}").json()["outcome"]["result"] == "Qubits."


@pytest.mark.full("takes 1 s")
def test_a_session_that_nobody_told_anything_of_has_no_result(parties: Parties) -> None:
    client, runner = parties.client(), parties.hand("a")
    run = client.start("a")
    runner.take()
    runner.report(run["run_id"], "completed", status="success")

    assert client.result("nobody").json()["detail"] == "Session not found"
    found = client.result(run["session_id"])
    assert (found.status_code, found.json()["detail"]) == (404, "No result found")


def test_a_failed_process_fails_its_run_with_its_error(parties: Parties) -> None:
    client, runner = parties.client(), parties.hand("a")
    run = client.start("a")["run_id"]
    runner.take()
    runner.report(run, "failed", error="Process exited with code 1")

    found = client.http.get(f"/runs/{run}").json()
    assert (found["status"], found["error"]) == ("failed", "Process exited with code 1")


def test_a_stop_is_told_as_runs_and_refused_once_the_run_has_ended(parties: Parties) -> None:
    client, runner = parties.client(), parties.hand("a")
    run = client.start("a")
    runner.take()
    stopped = client.http.post(f"/runs/{run['run_id']}/stop")
    assert stopped.status_code == 200
    assert stopped.json() == {
        "ok": True,
        "run_id": run["run_id"],
        "session_name": run["session_name"],
        "session_id": run["session_id"],
        "status": "stopping",
    }
    assert runner.poll() == {"stop_runs": [run["run_id"]]}
    runner.report(run["run_id"], "stopped", signal="SIGTERM")
    assert client.status(run["run_id"]) == "stopped"

    again = client.http.post(f"/runs/{run['run_id']}/stop")
    assert (again.status_code, again.json()["detail"]) == (400, "Run cannot be stopped (status: stopped)")


def test_what_is_not_known_is_refused_in_its_words(serving: Serving, parties: Parties) -> None:
    with serving.client() as http:
        runner = parties.hand("a").id
        missing = "run_0123456789ab"
        for answer, status, detail in (
            (http.get(f"/runs/{missing}"), 404, "Run not found"),
            (http.get("/runner/runs", params={"runner_id": "rnr_none"}), 401, "Runner not registered"),
            (http.post("/runner/heartbeat", json={"runner_id": "rnr_none"}), 401, "Runner not registered"),
            (http.post(f"/runner/runs/{missing}/started", json={"runner_id": "x"}), 401, "Runner not registered"),
            (http.post(f"/runner/runs/{missing}/started", json={"runner_id": runner}), 404, "Run not found"),
            (http.post(f"/runs/{missing}/stop"), 404, "Run not found"),
            (http.get("/sessions/by-name/none"), 404, "Session not found"),
        ):
            assert (answer.status_code, answer.json()["detail"]) == (status, detail)


def test_a_runner_leaves_by_itself_or_is_told_to(parties: Parties) -> None:
    first, second = parties.hand("a"), parties.hand("a")
    gone = first.http.delete(f"/runners/{first.id}", params={"self": "true"})
    assert (gone.status_code, gone.json()) == (
        200,
        {"ok": True, "message": "Runner deregistered", "initiated_by": "self"},
    )
    told = first.http.delete(f"/runners/{second.id}")
    assert (told.status_code, told.json()["initiated_by"]) == (200, "external")
    assert second.poll() == {"deregistered": True}
    assert first.http.get("/runner/runs", params={"runner_id": first.id}).status_code == 401
