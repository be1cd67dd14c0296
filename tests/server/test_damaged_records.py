"""With a damaged value in any stored field, each route still answers: without it, or that it is damaged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.http_servers import Serving
from support.servers import Server

from agentq.cli.main import main
from agentq.coordinator.storage.connection import CommandArgument

RUBBISH: tuple[CommandArgument, ...] = ("many", b"\xff\xfe\x00", "-1", "9" * 400, "", "[]")
COMMAND = {"kind": "command", "argv": ["true"]}
MADE: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("PUT", "/limits/cpu", {"max": 1}),
    ("POST", "/sessions", {"name": "s", "agent": "standin"}),
    ("PUT", "/schedules/nightly", {"cron": "0 3 * * *", "run": COMMAND}),
    ("POST", "/tokens", {"name": "t", "scopes": ["read"]}),
    ("POST", "/queues/q/pause", {}),
)
RUN_PARTS = ("", "/logs", "/logs?tail=5", "/logs?from_byte=3", "/result", "/attempts", "/children", "/why")
ONE = (
    *("sessions/s", "sessions/s/turns", "schedules/nightly", "schedules/nightly/history", "limits/cpu", "queues/q"),
    *("records/sessions/s", "records/sessions/s/turns"),
)
LISTS = (
    *("runs", "runs?limit=5", "sessions", "sessions?limit=5", "plans", "schedules", "limits", "queues", "workers"),
    *("tokens", "webhooks", "metrics", "health", "runners"),
)
VERBS = ("ls", "queue ls", "limit ls", "schedule ls", "session ls", "plan ls", "worker ls", "token ls", "dead ls")
RUN_VERBS = ("show", "logs", "why", "show --json")


@pytest.fixture
def serving(valkey: Server, tmp_path: Path) -> Iterator[Serving]:
    """A namespace for each test, since the test damages it."""
    serving = Serving(valkey, tmp_path).start()
    yield serving
    serving.stop()
    serving.check()


def fill(serving: Serving, client: httpx.Client) -> list[str]:
    """One record of each kind; returns what is stored."""
    first = serving.submit(queue="q")
    serving.submit(queue="q", delay_ms=600_000)
    serving.submit(queue="q", after=[first], limits={"cpu": 1})
    for method, path, body in MADE:
        answer = client.request(method, path, json=body)
        assert answer.status_code < 300, (path, answer.text)
    command = serving.store.connection.command
    return [key for key in command("KEYS", f"{serving.store.keyspace.root}*") if command("TYPE", key) == "hash"]


def damage(serving: Serving, keys: list[str]) -> Iterator[tuple[str, str]]:
    """Each field in turn, as long as whoever asks for the next has not; where, and what it is now."""
    command = serving.store.connection.command
    for key in keys:
        for field in command("HKEYS", key):
            before = command("HGET", key, field)
            for text in RUBBISH:
                command("HSET", key, field, text)
                yield key, f"{key} {field} {text!r}"[-120:]
            command("HSET", key, field, before)


@pytest.mark.full("takes 30 s")
def test_no_field_of_what_is_stored_makes_a_reading_route_fail(serving: Serving) -> None:
    failed: list[tuple[str, str, int]] = []
    with serving.client() as client:
        keys = fill(serving, client)
        asked = 0
        for key, what in damage(serving, keys):
            run = key.rpartition(":")[2]
            own = [f"runs/{run}{part}" for part in RUN_PARTS] if run.startswith("run_") else ONE
            for route in (*own, *LISTS):
                answer = client.get(f"/{route}")
                asked += 1
                failed += [(route, what, answer.status_code)] if answer.status_code >= 500 else []

    assert asked > 5_000
    assert {(route, what.partition("}")[2][:40]) for route, what, _ in failed} == set()


def test_a_damaged_state_or_entry_of_a_run_is_told(serving: Serving) -> None:
    command = serving.store.connection.command
    run = serving.submit(queue="told")
    key = serving.store.key(0, "run", run)
    with serving.client() as client:
        for text in RUBBISH:
            command("HSET", key, "entry", text)
            assert client.get(f"/runs/{run}/why").status_code == 200
        for text in RUBBISH:
            command("HSET", key, "state", text)
            for part in RUN_PARTS:
                answer = client.get(f"/runs/{run}{part}")
                assert answer.status_code == 409, part
                assert answer.json()["type"] == "urn:agentq:problem:damaged"
                assert f"The record of the run {run} is damaged" in answer.json()["detail"]
        command("HSET", key, "state", "pending")


def test_a_damaged_session_is_left_out_of_a_list_that_says_so(serving: Serving) -> None:
    with serving.client() as client:
        for name in ("whole", "broken"):
            client.post("/sessions", json={"name": name, "agent": "standin"})
        key = serving.store.key(0, "session", "broken")
        serving.store.connection.command("HSET", key, "created_at_ms", "soon")

        told = client.get("/sessions?limit=100").json()
        one = client.get("/sessions/broken")

    assert "whole" in [each["name"] for each in told["sessions"]]
    assert told["damaged"] == ["broken"]
    assert (one.status_code, "session broken is damaged" in one.json()["detail"]) == (409, True)
    serving.store.connection.command("DEL", key)


def test_no_damaged_field_of_a_token_lets_it_in_where_it_may_not_go_or_fails(serving: Serving) -> None:
    command = serving.store.connection.command
    text = serving.token("read", queues=["q"], expires_ms=60_000)
    key = serving.store.key(0, "token", text.split("_")[2])
    with serving.client(text) as client:
        assert client.get("/runs?queue=q").status_code == 200
        for field in command("HKEYS", key):
            before = command("HGET", key, field)
            for rubbish in RUBBISH:
                command("HSET", key, field, rubbish)
                assert client.get("/runs?queue=q").status_code in (200, 401, 403, 429), (field, rubbish)
                assert client.post("/runs", json=COMMAND).status_code in (401, 403, 429), (field, rubbish)
            command("HSET", key, field, before)
    command("DEL", key)


@pytest.mark.full("takes 20 s")
def test_no_field_of_what_is_stored_makes_a_reading_command_fail(
    serving: Serving, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in serving.settings.to_environment().items():
        monkeypatch.setenv(name, value)
    with serving.client() as client:
        keys = fill(serving, client)
    asked, failed = 0, []
    for key, what in damage(serving, keys):
        run = key.rpartition(":")[2]
        for verb in [f"{verb} {run}" for verb in RUN_VERBS] if run.startswith("run_") else VERBS:
            try:
                main(verb.split())
            except SystemExit as ended:
                if ended.code not in (None, 0, 1, 2):
                    failed.append((verb, what, str(ended.code)))
            except Exception as error:  # noqa: BLE001 - whatever it is, it is a traceback
                failed.append((verb, what, repr(error)))
            asked += 1
        said = capsys.readouterr()
        failed += [("", what, said.err)] if "Traceback" in said.err else []

    assert asked > 500
    assert failed == []
