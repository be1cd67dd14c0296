"""Runs that name a blueprint, executed by workers of our own: which agent they demand, and what that is told."""

from __future__ import annotations

from typing import Any

import pytest
from support.foreign_runner import Parties

from agentq.coordinator.explanation import Explanation
from agentq.coordinator.lease import Identity, Lease

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


def test_an_agent_that_a_worker_offers_executes_the_blueprint_of_its_name(parties: Parties, client: Any) -> None:
    labels = {"agent.researcher": "ready"}
    lease = Lease(
        parties.serving.store, Identity(id="theirs", queues=("default",), labels=labels), parties.serving.settings
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
    lease = Lease(
        parties.serving.store,
        Identity(id="ours", queues=("default",), labels={"agent.claude": "ready"}),
        parties.serving.settings,
    )
    lease.register()
    try:
        run = spec_of(client, "researcher")["id"]
        why = " ".join(Explanation(parties.serving.store, parties.serving.settings).of(run)[1])
    finally:
        lease.deregister()

    assert "If researcher is a blueprint, store it (`POST /agents`)" in why
    assert "Install" not in why
