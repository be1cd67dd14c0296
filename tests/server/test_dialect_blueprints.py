"""Runs of blueprints on agentq's own workers: which agent they demand, and its system prompt."""

from __future__ import annotations

from typing import Any

import pytest
from support.dialect_items import start
from support.dialect_runner import Parties

from agentq.coordinator.explain.run import RunExplanation
from agentq.coordinator.workers.lease import WorkerIdentity, WorkerLease

RESEARCHER = {"name": "researcher", "system_prompt": "You look into ${params.prompt}.", "capabilities": ["sources"]}


@pytest.fixture
def client(parties: Parties) -> Any:
    """A client of a server with one blueprint, and a worker that has the default agent."""
    http = parties.client().http
    for each in http.get("/agents").json():
        http.delete(f"/agents/{each['name']}")
    http.post("/capabilities", json={"name": "sources", "text": "Name your sources."})
    assert http.post("/agents", json=RESEARCHER).status_code == 201
    yield http
    http.delete("/agents/researcher")


def spec_of(http: Any, agent: str, **fields: object) -> dict[str, Any]:
    asked = {"type": "start_session", "agent_name": agent, "parameters": {"prompt": "owls"}, **fields}
    made = http.post("/runs", json=asked)
    assert made.status_code == 201, made.text
    found: dict[str, Any] = http.get(f"/runs/{made.json()['run_id']}").json()
    assert found["agent_name"] == agent
    return {**found["spec"], "id": found["id"]}


def test_a_blueprint_stands_for_the_default_agent_with_its_system_prompt(client: Any) -> None:
    spec = spec_of(client, "researcher")

    assert spec["agent"] == "claude"
    assert spec["turn"]["system_prompt"] == "You look into owls.\n\n---\n\nName your sources."


def test_each_turn_of_a_session_of_a_blueprint_is_told_its_system_prompt(client: Any) -> None:
    run = client.post(
        "/runs", json={"type": "start_session", "agent_name": "researcher", "parameters": {"prompt": "a"}}
    )
    asked = {"type": "resume_session", "session_id": run.json()["session_id"], "parameters": {"prompt": "bats"}}
    later = client.get(f"/runs/{client.post('/runs', json=asked).json()['run_id']}").json()["spec"]

    assert (later["agent"], later["turn"]["system_prompt"].partition("\n")[0]) == ("claude", "You look into bats.")


def test_a_child_has_the_scope_of_its_parent_below_its_own(parties: Parties, client: Any) -> None:
    """`scope` with `parent_session_id`, as the orchestrator's tools start a child; also that of the child's child."""
    runner = parties.hand()
    prompt = {"system_prompt": "${scope.project} ${scope.user}", "capabilities": []}
    assert client.patch("/agents/researcher", json=prompt).status_code == 200
    parent = start(client, scope={"project": "apollo", "user": "ann"}).json()["session_id"]
    scoped = {"parent_session_id": parent, "scope": {"user": "bob"}}
    child = start(client, agent_name="researcher", **scoped).json()["session_id"]
    start(client, agent_name="researcher", parent_session_id=child)

    given = [runner.take() for _ in range(3)]

    told = [each["resolved_agent_blueprint"]["system_prompt"] for each in given if each.get("agent_name")]
    assert told == ["apollo bob", "apollo bob"]


def test_a_turn_that_is_asked_for_by_another_session_has_its_scope(parties: Parties, client: Any) -> None:
    runner = parties.hand()
    assert client.patch("/agents/researcher", json={"system_prompt": "${scope.project}"}).status_code == 200
    parent = start(client, scope={"project": "apollo"}).json()["session_id"]
    child = start(client, agent_name="researcher").json()["session_id"]
    for _ in range(2):
        runner.report(runner.take()["run_id"], "completed")
    asked = {"type": "resume_session", "session_id": child, "parameters": {"prompt": "go on"}}
    assert client.post("/runs", json={**asked, "parent_session_id": parent}).status_code == 201

    assert runner.take()["resolved_agent_blueprint"]["system_prompt"].startswith("apollo")


def test_an_agent_that_a_worker_offers_executes_the_blueprint_of_its_name(parties: Parties, client: Any) -> None:
    labels = {"agent.researcher": "ready"}
    lease = WorkerLease(
        parties.serving.store, WorkerIdentity(id="theirs", queues=("default",), labels=labels), parties.serving.settings
    )
    lease.register()
    try:
        assert spec_of(client, "researcher")["agent"] == "researcher"
    finally:
        lease.deregister()


def test_why_names_the_blueprint_that_is_not_stored_and_advises_to_install_nothing(
    parties: Parties, client: Any
) -> None:
    client.delete("/agents/researcher")
    lease = WorkerLease(
        parties.serving.store,
        WorkerIdentity(id="ours", queues=("default",), labels={"agent.claude": "ready"}),
        parties.serving.settings,
    )
    lease.register()
    try:
        run = spec_of(client, "researcher")["id"]
        why = " ".join(RunExplanation(parties.serving.store, parties.serving.settings).of(run)[1])
    finally:
        lease.deregister()

    assert "If researcher is a blueprint, store it (`POST /agents`)" in why
    assert "Install" not in why
