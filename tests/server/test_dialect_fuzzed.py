"""Fuzzed requests of runners and clients of the dialect are answered with less than 500, and break nothing."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from support.dialect_runner import BODIES, Client, Parties
from support.http_servers import Serving

SEED = 20_260_301
ROUNDS = 600
STRANGE: list[Any] = [
    *(None, "", "x", " ", "\0", "a/b", "ü" * 300, "x" * 5000, "${env.HOME}", "ses_000000000000", "run_0123456789ab"),
    *(0, -1, 1.5, 10**30, True, [], {}, [None], {"": None}, {"prompt": 1}, {"prompt": "x"}, ["a"] * 100, [[[[]]]]),
]
NAMES = (
    *("type", "kind", "prompt", "parameters", "session_id", "session_name", "agent_name", "project_dir", "runner_id"),
    *("parent_session_id", "execution_mode", "additional_demands", "scope", "hostname", "executor_profile", "tags"),
    *("executor", "agents", "slots", "queues", "error", "signal", "status", "session_status", "event_type", "role"),
    *("content", "result_data", "result_text", "timestamp", "executor_session_id", "name", "id", "queue", "priority"),
    *("capabilities", "mcp_servers", "parameters_schema", "hooks", "demands", "script_content", "script_file", "type"),
)


def paths(client: Client, runner: str) -> list[tuple[str, str]]:
    made = client.start()
    run, session = made["run_id"], made["session_id"]
    each = [("POST", f"/runner/runs/{run}/{verb}") for verb in ("started", "completed", "failed", "stopped")]
    each += [("POST", f"/sessions/{session}/{verb}") for verb in ("bind", "events", "stop")]
    each += [
        ("POST", path) for path in ("/runs", "/runner/register", "/runner/heartbeat", "/sessions", "/config/import")
    ]
    each += [("POST", f"/{kind}") for kind in ("agents", "capabilities", "scripts", "mcp-servers")]
    each += [("PATCH", f"/sessions/{session}/metadata"), ("PATCH", "/agents/x"), ("PATCH", "/agents/x/status")]
    each += [("GET", f"/sessions/{session}/{what}") for what in ("", "status", "result", "affinity", "events")]
    each += [("GET", path) for path in ("/agents", "/agents/x", "/scripts/x/download", "/config/export", "/runners")]
    each += [("POST", f"/runner/sessions/{session}/status"), ("DELETE", f"/runners/{runner}"), ("DELETE", "/agents/x")]
    return [*each, ("DELETE", f"/sessions/{session}"), ("POST", f"/runs/{run}/stop")]


def a_body(chance: random.Random, runner: str) -> Any:
    if chance.random() < 0.1:
        return chance.choice(STRANGE)
    body = dict(chance.choice([{}, *BODIES.values(), {"type": "start_session"}, {"type": "resume_session"}]))
    for name in chance.sample(NAMES, chance.randrange(6)):
        body[name] = chance.choice(STRANGE)
    if chance.random() < 0.6:
        body["runner_id"] = runner
    return body


@pytest.mark.full("takes 2 s")
def test_nothing_that_is_sent_makes_the_server_fail(serving: Serving, parties: Parties) -> None:
    chance, client = random.Random(SEED), parties.client()
    runner = parties.hand().id
    everywhere = paths(client, runner)
    for number in range(ROUNDS):
        method, path = chance.choice(everywhere)
        body = json.dumps(a_body(chance, runner))
        answer = client.http.request(method, path, content=body)
        assert answer.status_code < 500, (SEED, number, method, path, body, answer.text)
        assert answer.status_code < 400 or answer.json()["detail"], (number, method, path)

    after = parties.hand(hostname="after", project_dir="/after")
    for name in ("agents", "capabilities", "scripts", "mcp-servers"):
        assert client.http.get(f"/{name}").status_code == 200
    run = client.start(additional_demands={"hostname": "after"}, queue="default")["run_id"]
    assert after.http.get(f"/runs/{run}").json()["status"] == "pending"
    assert serving.records.get(run).spec.prompt == "do it"
