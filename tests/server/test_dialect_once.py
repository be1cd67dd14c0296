"""A dialect request with an `Idempotency-Key` is executed once, even if its answer was lost."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.dialect_runner import Client, Parties
from support.http_servers import Serving

from agentq.coordinator.model.ids import new_run_id
from agentq.coordinator.runs.queries import RunFilter

HOOKS = {"on_run_start": {"type": "agent", "agent_name": "gate"}}
BODIES: dict[str, tuple[int, dict[str, Any]]] = {
    "a": (200, {"type": "start_session", "session_name": "named", "prompt": "do it"}),
    "b": (200, {"type": "start_session", "prompt": "do it"}),
    "c": (201, {"type": "start_session", "agent_name": "worker-bee", "parameters": {"prompt": "do it"}}),
    "resume": (201, {"type": "resume_session", "session_id": "talk", "parameters": {"prompt": "go on"}}),
}


@pytest.fixture
def client(parties: Parties) -> Client:
    client = parties.client()
    client.http.post("/sessions", json={"name": "talk", "agent": "claude"})
    for name, hooks in (("gate", None), ("worker-bee", HOOKS)):
        client.http.post("/agents", json={"name": name, "hooks": hooks})
    return client


def asked(client: Client, body: dict[str, Any], key: str, status: int) -> dict[str, Any]:
    answer = client.http.post("/runs", json=body, headers={"idempotency-key": key})
    assert answer.status_code == status, answer.text
    told: dict[str, Any] = answer.json()
    return told


def broken_off(serving: Serving, told: dict[str, Any]) -> dict[str, str]:
    """As if the first request had been cut off before its run was there: what it had made up, which this returns."""
    command = serving.store.connection.command
    made = {"session": told["session_id"], "run": new_run_id(), "hook": new_run_id()}
    for key in command("KEYS", serving.store.key(0, "idempotency_key", "*")):
        body, _, answer = command("GET", key).partition(" ")
        if told["run_id"] in answer:
            command("SET", key, f"{body} {json.dumps(made)}", "KEEPTTL")
    command("HSET", serving.store.key(0, "dialect_fields", made["session"]), "promised", made["run"])
    return made


@pytest.mark.full("takes 2 s")
@pytest.mark.parametrize("kind", BODIES)
def test_what_is_sent_again_is_one_run_in_one_session(serving: Serving, client: Client, kind: str) -> None:
    status, body = BODIES[kind]
    first = asked(client, body, kind, status)
    assert asked(client, body, kind, status) == first
    made = broken_off(serving, first)

    again = [asked(client, body, kind, status) for _ in range(2)]

    assert [each["run_id"] for each in again] == [made["run"]] * 2
    turns = {each.id for each in serving.records.all(RunFilter(session=first["session_id"]))}
    assert turns == {first["run_id"], made["run"]}
    assert list(serving.records.get(made["run"]).spec.after) == ([made["hook"]] if kind == "c" else [])
    assert "another body" in asked(client, {**body, "execution_mode": "async_poll"}, kind, 422)["detail"]
    if kind == "a":
        assert "already exists" in asked(client, body, "another key", 409)["detail"]
