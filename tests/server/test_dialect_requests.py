"""Recorded requests of the dialect's programs, in each dialect, and the answers of their own coordinator."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import pytest
from support.dialect_runner import BODIES, PROFILE, Client, Dialect, Parties, SteppedRunner
from support.http_servers import Serving

from agentq.dialects.agent_orchestrator.dialect_table import DIALECTS

CLAUDE = "3e7f6f4e-8a58-4d0e-9ac1-0a8f3e1d2c4b"
"""What Claude calls its conversation: an executor of dialect A makes it the id of its session."""
PAST_A_PAGE = 120
CHECKS_FIRST = ("failed", "stopped")
ALL: list[Dialect] = ["a", "b", "v0.1-v0.6", "c"]


def listed(client: Client, **query: Any) -> dict[str, dict[str, Any]]:
    """`GET /sessions` as executors and commands send it: all of them, by name."""
    told = client.http.get("/sessions", params=query).json()
    assert told.keys() == {"sessions"}
    return {each["session_name"]: each for each in told["sessions"]}


def named(dialect: str) -> str:
    return f"{dialect}-{time.monotonic_ns()}"


def begun(hand: SteppedRunner, name: str, uuid: str) -> None:
    """What the Claude executor of dialect A says once its conversation has begun."""
    body = {"session_id": uuid, "session_name": name, "project_dir": "/srv/project"}
    answer = hand.http.post("/sessions", json=body)
    assert (answer.status_code, answer.json()["ok"]) == (200, True)


# ---- dialect A: names, conversations, callbacks


def test_a_session_is_not_listed_before_its_executor_has_begun_it(parties: Parties) -> None:
    """Its executor looks whether the name is taken, and ends with an error if it is."""
    client, hand = parties.client(), parties.hand("a")
    name = named("s")
    client.start("a", session_name=name)
    hand.take()

    assert name not in listed(client)
    assert client.http.get(f"/sessions/by-name/{name}").json()["detail"] == "Session not found"
    assert client.session(name) == "not_existent"

    begun(hand, name, f"{CLAUDE}1")

    assert listed(client)[name]["status"] == "running"
    assert client.http.get(f"/sessions/by-name/{name}").json()["session"]["session_id"] == f"{CLAUDE}1"


def test_a_list_has_the_id_that_the_executor_gave(parties: Parties) -> None:
    """`claude --resume` takes it from there; the name is no UUID."""
    client, hand = parties.client(), parties.hand("a")
    name = named("s")
    run = client.start("a", session_name=name)["run_id"]
    hand.take()
    begun(hand, name, f"{CLAUDE}2")
    hand.report(run, "completed", status="success")

    assert listed(client)[name]["session_id"] == f"{CLAUDE}2"
    again = client.http.post("/runs", json={"type": "resume_session", "session_name": name, "prompt": "go on"})
    assert again.status_code == 200
    assert hand.take()["session_name"] == name


@pytest.mark.parametrize("ended", CHECKS_FIRST)
def test_a_name_is_free_again_where_its_executor_never_began(parties: Parties, ended: str) -> None:
    client, hand = parties.client(), parties.hand("a")
    name = named("s")
    run = client.start("a", session_name=name)["run_id"]
    hand.take()
    if ended == "stopped":
        client.http.post(f"/runs/{run}/stop")
    hand.report(run, ended, error="Process exited with code 1")
    assert name not in listed(client)

    again = client.start("a", session_name=name)["run_id"]

    assert hand.take()["run_id"] == again != run


def test_a_parent_alone_asks_for_a_callback(parties: Parties) -> None:
    """There is no `execution_mode` in dialect A."""
    client, hand = parties.client(), parties.hand("a")
    parent, child = named("p"), named("k")
    first = client.start("a", session_name=parent)["run_id"]
    hand.take()
    begun(hand, parent, f"{CLAUDE}3")
    hand.report(first, "completed", status="success")
    body = {"type": "start_session", "session_name": child, "prompt": "count", "parent_session_name": parent}
    run = client.http.post("/runs", json=body).json()["run_id"]
    hand.take()
    begun(hand, child, f"{CLAUDE}4")
    said = {"event_type": "message", "session_id": f"{CLAUDE}4", "session_name": child, "role": "assistant"}
    hand.http.post(f"/sessions/{CLAUDE}4/events", json={**said, "content": [{"type": "text", "text": "Three."}]})
    hand.report(run, "completed", status="success")

    told = hand.take()

    assert (told["type"], told["session_name"]) == ("resume_session", parent)
    assert told["prompt"] == (
        f'The child agent session "{child}" has completed.\n\n## Child Result\n\nThree.\n\n'
        "Please continue with the orchestration based on this result."
    )


def test_a_run_that_is_its_own_parent_calls_nobody_back(parties: Parties) -> None:
    client, hand = parties.client(), parties.hand("a")
    name = named("p")
    run = client.start("a", session_name=name, parent_session_name=name)["run_id"]
    hand.take()
    begun(hand, name, f"{CLAUDE}5")
    hand.report(run, "completed", status="success")

    assert client.http.get(f"/runs/{run}").json()["execution_mode"] == "sync"


# ---- all dialects: runs at a time


@pytest.mark.parametrize("dialect", ALL)
def test_a_child_runs_while_its_parent_waits_on_the_one_runner(parties: Parties, dialect: Dialect) -> None:
    client, hand = parties.client(), parties.hand(dialect)
    parent = client.start(dialect)
    assert hand.take()["run_id"] == parent["run_id"]
    more = {"parent_session_name" if dialect == "a" else "parent_session_id": parent["session_id"]}

    child = client.start(dialect, **more)["run_id"]

    assert hand.take()["run_id"] == child
    assert (client.status(parent["run_id"]), client.status(child)) == ("running", "running")
    hand.report(child, "completed", status="success")
    hand.report(parent["run_id"], "completed", status="success")
    if DIALECTS[dialect].callback_requested_by == "parent":
        called = hand.take()
        assert (called["type"], called["session_name"]) == ("resume_session", parent["session_id"])
        hand.report(called["run_id"], "completed", status="success")


def test_a_runner_takes_as_many_runs_as_there_are(parties: Parties) -> None:
    client, hand = parties.client(), parties.hand("a")
    runs = {client.start("a")["run_id"] for _ in range(4)}

    assert {hand.take()["run_id"] for _ in runs} == runs


@pytest.mark.full("takes 2 s")
def test_a_parent_that_waits_takes_no_slot_where_there_is_a_limit(parties: Parties) -> None:
    client, hand = parties.client(), parties.hand("c", tags=["slots=1"])
    parent = client.start()
    assert hand.take()["run_id"] == parent["run_id"]
    child = client.start(parent_session_id=parent["session_id"])
    assert hand.take()["run_id"] == child["run_id"]
    grandchild = client.start(parent_session_id=child["session_id"])
    assert hand.take()["run_id"] == grandchild["run_id"]
    other = client.start()["run_id"]

    hand.report(grandchild["run_id"], "completed", status="success")
    hand.report(child["run_id"], "completed", status="success")

    assert client.status(other) == "pending"
    hand.report(parent["run_id"], "completed", status="success")
    assert hand.take()["run_id"] == other


# ---- runners: identity, stops, farewell


@pytest.mark.parametrize("dialect", ALL)
def test_a_stop_is_spelled_as_its_runner_reads_it(parties: Parties, dialect: Dialect) -> None:
    client, hand = parties.client(), parties.hand(dialect)
    run = client.start(dialect)
    hand.take()
    client.http.post(f"/runs/{run['run_id']}/stop")
    spelled = {"stop_runs": [run["run_id"]], "stop_sessions": [run["session_id"]]}

    assert hand.poll() == {stop.key: spelled[stop.key] for stop in DIALECTS[dialect].stops}

    hand.report(run["run_id"], "stopped", signal="SIGTERM")
    assert client.status(run["run_id"]) == "stopped"


def test_a_runner_of_the_releases_is_told_both_spellings(parties: Parties) -> None:
    """Their loop reads `stop_runs`; told `stop_sessions` alone it looks for a run, fails three times, and ends."""
    assert "lifecycle" not in BODIES["v0.1-v0.6"]["executor"]
    client, hand = parties.client(), parties.hand("v0.1-v0.6")
    run = client.start()
    hand.take()
    client.http.post(f"/sessions/{run['session_id']}/stop")

    assert hand.poll() == {"stop_runs": [run["run_id"]], "stop_sessions": [run["session_id"]]}


def test_a_runner_without_tags_has_the_same_id_again_and_one_at_a_time(parties: Parties) -> None:
    said = {"hostname": named("host"), "project_dir": "/srv/project", "executor_type": "claude-code"}
    http = parties.client().http

    first = http.post("/runner/register", json=said)
    second = http.post("/runner/register", json=said)

    assert first.json()["runner_id"].startswith("lnch_")
    assert (second.status_code, second.json()["detail"]["error"]) == (409, "duplicate_runner")
    assert second.json()["detail"]["executor_type"] == "claude-code"
    assert second.json()["detail"]["runner_id"] == first.json()["runner_id"]


def test_what_an_executor_of_b_binds_is_kept_and_demanded(serving: Serving, parties: Parties) -> None:
    client, hand = parties.client(), parties.hand("b")
    run = client.start("b", execution_mode="async_poll")
    hand.take()
    bound = {"executor_session_id": CLAUDE, "hostname": "host-1", "executor_type": "claude-code"}
    assert hand.http.post(f"/sessions/{run['session_id']}/bind", json=bound).status_code == 200
    hand.report(run["run_id"], "completed", status="success")

    shown = client.http.get(f"/sessions/{run['session_id']}").json()["session"]
    assert (shown["executor_type"], shown["execution_mode"]) == ("claude-code", "async_poll")
    where = client.http.get(f"/sessions/{run['session_id']}/affinity").json()["affinity"]
    assert where == {"session_id": run["session_id"], "project_dir": None, **bound}
    again = {"type": "resume_session", "session_id": run["session_id"], "prompt": "go on"}
    resumed = client.http.post("/runs", json=again).json()["run_id"]
    assert serving.records.get(resumed).spec.demands["executor_profile"] == "claude-code"
    hand.http.patch(f"/sessions/{run['session_id']}/metadata", json={"executor_type": "other"})
    assert client.http.get(f"/sessions/{run['session_id']}").json()["session"]["executor_type"] == "other"


def test_a_runner_that_was_told_to_go_is_listed_no_longer(parties: Parties) -> None:
    client, hand = parties.client(), parties.hand("c", hostname=named("host"))
    client.http.delete(f"/runners/{hand.id}")
    assert hand.poll() == {"deregistered": True}

    assert hand.id not in {each["runner_id"] for each in client.http.get("/runners").json()["runners"]}
    hand.beat()
    assert hand.id not in {each["runner_id"] for each in client.http.get("/runners").json()["runners"]}
    assert hand.poll() == {"deregistered": True}, "an answer that was lost is given again"
    assert client.http.post("/runner/register", json={**PROFILE, "hostname": named("host")}).status_code == 200


# ---- lists and pages of clients


def test_a_list_without_a_page_is_whole(parties: Parties) -> None:
    """No client of theirs asks for a second page, and names are looked up in the list."""
    client = parties.client()
    made = {client.start()["session_id"] for _ in range(PAST_A_PAGE)}

    told = client.http.get("/sessions").json()

    assert told.keys() == {"sessions"}
    assert made <= {each["session_id"] for each in told["sessions"]}
    page = client.http.get("/sessions", params={"limit": 2}).json()
    assert (len(page["sessions"]), page.keys()) == (2, {"sessions", "next"})
    assert "status" not in page["sessions"][0], "a page is in words of ours"
    with client.http.stream("GET", "/sse/sessions") as stream:
        line = next(line for line in stream.iter_lines() if line.startswith("data: "))
    assert made <= {each["session_id"] for each in json.loads(line.removeprefix("data: "))["sessions"]}


def test_a_session_is_first_told_of_as_pending(serving: Serving, parties: Parties) -> None:
    client, hand = parties.client(), parties.hand()
    heard: list[dict[str, Any]] = []

    def hear() -> None:
        with serving.client() as http, http.stream("GET", "/sse/sessions", params={"include_init": "false"}) as told:
            lines = told.iter_lines()
            next(lines)
            opened.set()
            for line in lines:
                if line.startswith("data: "):
                    heard.append(json.loads(line.removeprefix("data: ")).get("session", {}))
                if any(each.get("status") == "running" for each in heard):
                    return

    opened = threading.Event()
    listener = threading.Thread(target=hear)
    listener.start()
    assert opened.wait(10)
    session = client.start()["session_id"]
    hand.take()
    listener.join(20)

    assert next(each["status"] for each in heard if each.get("session_id") == session) == "pending"


def test_a_pending_session_can_be_deleted(parties: Parties) -> None:
    client = parties.client()
    made = client.start()

    gone = client.http.delete(f"/sessions/{made['session_id']}")

    assert gone.status_code == 200
    assert client.http.get(f"/sessions/{made['session_id']}").status_code == 404
    assert client.status(made["run_id"]) == "stopped", "it is kept for a while, and no runner is given it"


def test_a_session_that_is_not_there_is_refused_in_one_sentence(parties: Parties) -> None:
    missing = parties.client().http.get("/sessions/ses_000000000000")

    assert (missing.status_code, missing.json()["detail"]) == (404, "Session not found")
    assert "agentq session ls" in missing.json()["advice"], "what helps a person stands beside it"


@pytest.mark.parametrize(("dialect", "sentence"), [("a", "Session not finished"), ("b", "Session not finished")])
def test_a_result_that_is_not_there_yet_is_refused_in_the_words_of_the_dialect(
    parties: Parties, dialect: Dialect, sentence: str
) -> None:
    client = parties.client()
    made = client.start(dialect)

    early = client.result(made["session_id"])

    assert (early.status_code, early.json()["detail"]) == (400, sentence)


def test_a_runners_token_lists_the_sessions_of_its_runner_alone(guarded: Serving) -> None:
    """The executor of dialect A looks names up in the list."""
    own, other, client = (
        guarded.token("work", kind="runner"),
        guarded.token("work", kind="runner"),
        guarded.token("submit", "read"),
    )
    hand, stranger = (
        SteppedRunner(guarded, "a", own, hostname=named("h")),
        SteppedRunner(guarded, "a", other, hostname=named("h")),
    )
    name, seen = named("s"), Client(guarded, client)
    seen.start("a", session_name=name)
    hand.take()
    begun(hand, name, f"{CLAUDE}6")

    assert name in listed(seen)
    assert [each["session_name"] for each in hand.http.get("/sessions").json()["sessions"]] == [name]
    assert stranger.http.get("/sessions").json() == {"sessions": []}
    assert hand.http.get("/sessions", params={"limit": 5}).status_code == 403
    for party in (hand, stranger, seen):
        party.http.close()
