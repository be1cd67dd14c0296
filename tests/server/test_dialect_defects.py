"""What goes wrong in the system that these runners come from, and does not here: the list in runner-protocol.md.

On a real server, with runners that know nothing of it. What concerns the core alone is in test_runner_defects.py, what
a runner does with its processes (13, 15) in test_example_runner.py.
"""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from typing import Any

import httpx
import pytest
from pydantic import JsonValue
from support.dialect_runner import PROFILE, Client, Dialect, Parties, SteppedRunner, is_polling
from support.http_servers import Serving
from support.leases import end_lease
from support.servers import until

from agentq.dialects.agent_orchestrator.blueprints.store import BlueprintStore
from agentq.dialects.agent_orchestrator.runners.poll_answer import parse_hook_answer
from agentq.dialects.agent_orchestrator.runners.registry import RunnerRegistry
from agentq.dialects.agent_orchestrator.runners.run_reports import UNREPORTED_END_MS, RunReports
from agentq.dialects.agent_orchestrator.runners.server_liveness import ServerLiveness
from agentq.dialects.agent_orchestrator.sessions.child_runs import ChildRuns
from agentq.dialects.agent_orchestrator.sessions.store import DialectSessionStore
from agentq.dialects.agent_orchestrator.submission import DialectRunRequest, DialectSubmitter
from agentq.dialects.agent_orchestrator.timing import RunnerTiming

BOTH: list[Dialect] = ["a", "c"]


@pytest.fixture(scope="module")
def serving(hasty: Serving) -> Serving:
    return hasty


def connection_that_polls(serving: Serving, runner: str) -> socket.socket:
    """A poll of which nobody reads the answer."""
    link = socket.create_connection(("127.0.0.1", serving.port), timeout=10)
    link.sendall(f"GET /runner/runs?runner_id={runner} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    return link


def events_of(serving: Serving, run: str) -> list[str]:
    with serving.client() as http:
        page = http.get(f"/runs/{run}").json()
    return [f"{each['attempt']} {each['verb']}" for each in page["attempts"]]


# 1: lost claim


@pytest.mark.full("takes 1 s")
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


@pytest.mark.full("takes 1 s")
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


def a_hook(client: Client, on_error: str = "continue", timeout_seconds: float = 60) -> None:
    hook = {"type": "agent", "agent_name": "gate", "on_error": on_error, "timeout_seconds": timeout_seconds}
    for body in ({"name": "gate"}, {"name": "worker-bee", "hooks": {"on_run_start": hook}}):
        client.http.delete(f"/agents/{body['name']}")
        assert client.http.post("/agents", json=body).status_code == 201


def answered(runner: SteppedRunner, answer: dict[str, Any]) -> None:
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


@pytest.mark.full("takes 3 s")
@pytest.mark.parametrize("why", ["not today", "not today, " * 5000])
def test_a_hook_can_forbid_a_run(parties: Parties, why: str) -> None:
    """Defect 2. It is an agent that says why, and it may say anything."""
    runner, client = parties.hand(), parties.client()
    a_hook(client)
    run = client.start(agent_name="worker-bee")["run_id"]

    answered(runner, {"action": "block", "block_reason": why})

    assert runner.poll() is None
    found = client.http.get(f"/runs/{run}").json()
    assert (found["status"], found["error"][:39]) == ("failed", "Blocked by on_run_start hook: not today")


def test_a_run_whose_hook_failed_says_so(parties: Parties) -> None:
    runner, client = parties.hand(), parties.client()
    a_hook(client, "block")
    run = client.start(agent_name="worker-bee")["run_id"]

    hook = runner.take()["run_id"]
    runner.report(hook, "failed", error="the gate broke")

    until(lambda: client.status(run) == "failed", "the run to be refused")
    error = client.http.get(f"/runs/{run}").json()["error"]
    assert error == f"Blocked by on_run_start hook: Hook failed: dependency {hook} is failed"


@pytest.mark.full("takes 2 s")
@pytest.mark.parametrize("on_error", ["block", "continue"])
def test_a_hook_that_takes_too_long_is_stopped_and_waited_for_no_longer(parties: Parties, on_error: str) -> None:
    """Its runner sends no heartbeat meanwhile: it only polls."""
    runner, client = parties.hand(), parties.client()
    a_hook(client, on_error, timeout_seconds=0.3)
    run = client.start(agent_name="worker-bee")["run_id"]

    hook = runner.take()
    told = next(filter(None, (runner.poll() for _ in range(20))))
    runner.report(hook["run_id"], "stopped", signal="SIGTERM")

    assert told == {"stop_sessions": [hook["session_id"]]}
    assert client.status(hook["run_id"]) == "failed"
    if on_error == "block":
        until(lambda: client.status(run) == "failed", "the run to be refused")
    else:
        assert runner.run()["run_id"] == run


@pytest.mark.parametrize("answer", ["[" * 100_000, "{", '"x"', None])
def test_a_hooks_answer_that_cannot_be_understood_forbids_nothing(answer: JsonValue) -> None:
    assert parse_hook_answer(answer) == {}


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


@pytest.mark.full("takes 2 s")
def test_what_a_lost_runner_held_runs_elsewhere_and_all_say_so(serving: Serving, parties: Parties) -> None:
    """Defect 4; and 5: the lost one's word changes nothing any more, and it is told to stop."""
    lost, client = parties.hand("a"), parties.client()
    run = client.start("a")["run_id"]
    lost.take()
    assert client.status(run) == "running"

    until(lambda: end_lease(serving.store, lost.id) and client.status(run) == "pending", "the runner to be lost")
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


@pytest.mark.full("takes 2 s")
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


def reports_of(serving: Serving) -> RunReports:
    store, shelf = serving.store, BlueprintStore(serving.store)
    return RunReports(
        RunnerRegistry(store, serving.settings, RunnerTiming(), shelf, ServerLiveness(store)),
        DialectSessionStore(store),
    )


def test_a_run_whose_end_was_told_and_not_reported_is_completed(serving: Serving, parties: Parties) -> None:
    """The runner's report was lost for good: its executor had said that it was over."""
    runner, client, reports = parties.hand("a"), parties.client(), reports_of(serving)
    run = client.start("a")
    runner.take()
    over = {"event_type": "session_stop", "session_name": run["session_name"]}
    assert runner.http.post(f"/sessions/{run['session_id']}/events", json=over).status_code == 200
    look = reports.runner_registry.get_snapshot(runner.id)

    reports.end_overdue(look)
    assert client.status(run["run_id"]) == "running"
    reports.end_overdue(replace(look, now_ms=look.now_ms + UNREPORTED_END_MS + 1000))
    assert client.status(run["run_id"]) == "completed"


def test_a_run_that_runs_longer_than_it_may_is_failed_and_stopped(serving: Serving, parties: Parties) -> None:
    """Foreign runners have no timeouts: it is looked at each of their heartbeats."""
    runner = parties.hand("a")
    run = serving.submit(kind="agent", agent="claude", prompt="x", argv=(), timeout_ms=1)
    runner.take()

    until(lambda: runner.beat().is_success and serving.records.get(run).state == "failed", "the run to fail")

    assert runner.poll() == {"stop_runs": [run]}


# 6, 8 and 9: a restart


@pytest.mark.full("takes 3 s")
def test_no_runner_notices_a_restart_of_the_server_and_runs_keep_their_order(
    serving: Serving, parties: Parties
) -> None:
    """Defects 6 and 8."""
    runner, client = parties.hand(tags=["slots=1"]), parties.client()
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
    """Defect 9."""
    parties.hand()
    client = parties.client()
    run = client.start(additional_demands={"tags": ["gpu"]})["run_id"]

    found = client.http.get(f"/runs/{run}").json()
    why = client.http.get(f"/runs/{run}/why").json()

    assert (found["status"], found["timeout_at"]) == ("pending", None)
    assert "tag.gpu" in json.dumps(why)
    assert serving.records.get(run).spec.expires_ms is None


def test_a_run_that_nobody_takes_fails_in_time_where_that_is_set(serving: Serving, parties: Parties) -> None:
    """Defect 9: RUN_NO_MATCH_TIMEOUT, which is off unless it is set."""
    client, store = parties.client(), serving.store
    asking = DialectSubmitter(
        store,
        RunnerTiming(run_no_match_timeout=0.3),
        BlueprintStore(store),
        DialectSessionStore(store),
        ChildRuns(DialectSessionStore(store)),
    )
    made = asking.submit(DialectRunRequest(type="start_session", parameters={"prompt": "x"}))

    until(lambda: client.status(made.run_id) == "failed", "the run to fail")
    found = client.http.get(f"/runs/{made.run_id}").json()
    assert (found["error"], found["timeout_at"] is None) == ("No matching runner available within timeout", False)
    assert client.session(made.session_id) == "failed"


# 7: coming back


@pytest.mark.full("takes 5 s")
def test_a_crashed_runner_comes_back_at_once_and_its_runs_with_it(parties: Parties) -> None:
    """Defect 7."""
    crashed, client = parties.hand(), parties.client()
    run = client.start()["run_id"]
    crashed.take()
    crashed.http.close()

    until(lambda: register(client).status_code == 200, "its last poll to be a while ago")

    crashed.http = client.http  # its new process
    again = crashed.take()
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
    until(lambda: register(client).status_code == 200, "the place to be free")
