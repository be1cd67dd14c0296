"""Agents that a runner brings along, agents with a script, and how scripts reach runners."""

from __future__ import annotations

import io
import json
import tarfile
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from support.dialect_items import GREET, client_without_items, start, stored
from support.dialect_runner import Parties, SteppedRunner, is_polling
from support.http_servers import Serving
from support.servers import until


@pytest.fixture(scope="module")
def serving(hasty: Serving) -> Serving:
    return hasty


@pytest.fixture
def http(parties: Parties) -> Iterator[httpx.Client]:
    with client_without_items(parties) as client:
        yield client


BROUGHT = {
    "name": "test",
    "description": "Prints what it is told",
    "command": "scripts/test/test",
    "parameters_schema": {"type": "object", "properties": {"stdout": {"type": "string"}}, "required": ["stdout"]},
}


def procedural(parties: Parties, **fields: Any) -> SteppedRunner:
    executor = {"type": "procedural", "command": "executors/procedural-executor/ao-procedural-exec"}
    return parties.hand(executor_profile="test-procedural", executor=executor, **fields)


def test_an_agent_that_a_runner_brought_along_can_be_run_there(parties: Parties, http: httpx.Client) -> None:
    runner = procedural(parties, agents=[BROUGHT])

    (listed,) = http.get("/agents").json()
    assert {**listed, **BROUGHT, "type": "procedural", "status": "active", "runner_id": runner.id} == listed
    assert {**http.get("/agents/test").json(), **BROUGHT} == http.get("/agents/test").json()
    wrong = start(http, agent_name="test")
    assert (wrong.status_code, wrong.json()["detail"]["error"]) == (400, "parameter_validation_failed")
    assert wrong.json()["detail"]["parameters_schema"] == BROUGHT["parameters_schema"]
    made = start(http, agent_name="test", parameters={"stdout": "Hello"})
    assert made.status_code == 201, made.text

    given = runner.take()
    assert (given["run_id"], given["parameters"]) == (made.json()["run_id"], {"stdout": "Hello"})
    assert given["resolved_agent_blueprint"]["command"] == BROUGHT["command"]
    runner.report(given["run_id"], "completed")
    again = {"type": "resume_session", "session_id": given["session_id"], "parameters": {"prompt": "x"}}
    assert http.post("/runs", json=again).json()["detail"] == {
        "error": "procedural_agent_no_resume",
        "message": "Procedural agents are stateless and cannot be resumed",
        "agent_name": "test",
    }
    runner.http.delete(f"/runners/{runner.id}", params={"self": "true"})
    assert http.get("/agents").json() == []


def test_an_agent_that_a_runner_brings_no_more_is_gone(parties: Parties, http: httpx.Client) -> None:
    runner = procedural(parties, agents=[BROUGHT])
    runner.http.delete(f"/runners/{runner.id}", params={"self": "true"})

    procedural(parties)

    assert http.get("/agents/test").status_code == 404


def test_an_agent_with_a_script_takes_the_parameters_of_that(parties: Parties, http: httpx.Client) -> None:
    runner = procedural(parties, tags=["uv"])
    stored(http, "scripts", GREET)
    stored(http, "agents", {"name": "greeter", "description": "Greets", "type": "procedural", "script": "greet"})
    assert http.get("/agents/greeter").json()["parameters_schema"] == GREET["parameters_schema"]
    assert "parameters_schema" not in http.get("/agents/greeter?raw=true").json()

    assert start(http, agent_name="greeter").status_code == 400
    made = start(http, agent_name="greeter", parameters={"who": "you"}).json()

    assert runner.poll() == {"sync_scripts": ["greet"], "remove_scripts": []}
    given = runner.run()
    assert (given["run_id"], given["resolved_agent_blueprint"]["script"]) == (made["run_id"], "greet")
    assert given["demands"] == {"executor_type": "procedural", "tags": ["uv"]}


def test_an_agent_whose_script_is_not_there_is_refused(http: httpx.Client) -> None:
    stored(http, "agents", {"name": "greeter", "description": "Greets", "type": "procedural", "script": "greet"})

    detail = start(http, agent_name="greeter", parameters={"who": "you"}).json()["detail"]

    assert (detail["error"], detail["script_name"]) == ("script_not_found", "greet")


def test_a_script_is_fetched_in_a_folder_of_its_name(http: httpx.Client) -> None:
    stored(http, "scripts", GREET)

    fetched = http.get("/scripts/greet/download")

    assert fetched.headers["content-disposition"] == 'attachment; filename="greet.tar.gz"'
    with tarfile.open(fileobj=io.BytesIO(fetched.content)) as archive:
        about = archive.extractfile("greet/script.json")
        script = archive.extractfile("greet/g.py")
        assert about is not None
        assert script is not None
        assert script.read().decode() == GREET["script_content"]
        assert json.load(about) == {name: GREET[name] for name in GREET if name != "script_content"}


def polled(runner: SteppedRunner) -> tuple[threading.Thread, list[Any]]:
    told: list[Any] = []
    thread = threading.Thread(target=lambda: told.append(runner.poll()))
    thread.start()
    return thread, told


@pytest.mark.full("waits for polls that are held")
def test_a_runner_that_waits_is_told_at_once_of_the_script_that_changed(tmp_path: Any, valkey: Any) -> None:
    """And of no other: the poll is held for 30 seconds, and ends as the script is there."""
    serving = Serving(valkey, tmp_path).start()
    parties = Parties(serving)
    try:
        http, runner = parties.client().http, parties.hand()
        stored(http, "scripts", GREET)
        assert runner.poll() == {"sync_scripts": ["greet"], "remove_scripts": []}
        for act, expected in (
            (lambda: stored(http, "scripts", {**GREET, "name": "part"}), {"sync_scripts": ["part"]}),
            (lambda: http.patch("/scripts/greet", json={"script_content": "print(2)"}), {"sync_scripts": ["greet"]}),
            (lambda: http.delete("/scripts/part"), {"remove_scripts": ["part"]}),
        ):
            thread, told = polled(runner)
            until(lambda: is_polling(serving, runner.id), "the poll to be held")
            act()
            thread.join(20)
            assert told == [{"sync_scripts": [], "remove_scripts": [], **expected}]
    finally:
        parties.close()
        serving.stop()
