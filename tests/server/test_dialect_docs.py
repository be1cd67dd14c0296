"""Dialect B, where it is neither A nor C; and what may be said without a server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.dialect_runner import Parties
from support.http_servers import Serving

from agentq.coordinator.config.server_settings import ServerSettings
from agentq.coordinator.errors import Invalid
from agentq.coordinator.workers.identity import select_served_lanes
from agentq.dialects.agent_orchestrator import dialect_table
from agentq.dialects.agent_orchestrator.blueprints.placeholders import fill_placeholders
from agentq.dialects.agent_orchestrator.demands import DialectDemands
from agentq.dialects.agent_orchestrator.runners.registration import RunnerRegistration, make_label
from agentq.dialects.agent_orchestrator.timing import RunnerTiming


@pytest.fixture(scope="module")
def serving(hasty: Serving) -> Serving:
    return hasty


@pytest.mark.full("takes 2 s")
def test_a_client_of_dialect_b_and_its_runner_are_spoken_to_in_their_way(parties: Parties) -> None:
    runner, client = parties.hand("b"), parties.client()
    made = client.start("b", "write the docs", execution_mode="async_poll")
    given = runner.take()

    assert (given["prompt"], given["execution_mode"]) == ("write the docs", "async_poll")
    client.http.post(f"/sessions/{made['session_id']}/stop")
    assert runner.poll() == {"stop_runs": [made["run_id"]]}
    told = {"event_type": "run_completed", "session_id": made["session_id"]}
    assert runner.http.post(f"/sessions/{made['session_id']}/events", json=told).status_code == 201
    assert client.session(made["session_id"]) == "finished"


@pytest.mark.parametrize(
    ("body", "dialect", "slots"),
    [
        (None, "a", 1000),
        ({"hostname": "h", "project_dir": "/p", "executor_type": "claude-code"}, "b", 1000),
        ({"hostname": "h", "project_dir": "/p", "executor_type": "x", "tags": ["x", "slots=3"]}, "b", 3),
        ({"hostname": "h", "project_dir": "/p", "executor_profile": "x", "slots": 2}, "v0.1-v0.6", 2),
        ({"hostname": "h", "executor_profile": "x", "executor": {"lifecycle": "one_shot"}, "slots": 2}, "c", 2),
        ({"tags": ["slots=0"]}, "a", 1000),
    ],
)
def test_a_registration_tells_its_dialect(body: dict[str, Any] | None, dialect: str, slots: int) -> None:
    registration = RunnerRegistration.read(body)

    assert (registration.dialect.name, registration.concurrency) == (dialect, slots)
    identity = registration.identity("lnch_000000000000")
    assert identity.slots == slots
    assert not [label for label in identity.labels if "slots" in label]


def test_a_runner_serves_agents_alone_whichever_they_are() -> None:
    identity = RunnerRegistration.read({"hostname": "h"}).identity("rnr_000000000000")

    lanes = ["default:5:", "default:5f:", "default:5:agent.claude=ready", "other:5:agent.claude=ready",
             "default:5:agent.x=ready,executor_type=!=procedural", "default:5:agent.x=ready,tag.gpu=yes"]  # fmt: skip
    assert select_served_lanes(identity, lanes) == [lanes[2], lanes[4]]


@pytest.mark.parametrize("text", ["plain", "/srv/a b", "/srv/project", "ü", "x" * 500, "-x", ""])
def test_any_text_has_a_label_that_tells_it_from_others(text: str) -> None:
    label = make_label(text)

    assert RunnerRegistration.read({"hostname": label}).identity("r").labels["hostname"] == label
    assert label != make_label(text + "x")


def test_demands_add_up_and_the_higher_counts() -> None:
    high = DialectDemands(hostname="here", tags=("a",))
    low = DialectDemands.read({"hostname": "there", "executor_profile": "coding", "tags": ["b", "a"]})

    assert low.merge_below(high).to_demands() == {
        "hostname": "here",
        "executor_profile": "coding",
        "executor_type": "!=procedural",
        "tag.a": "yes",
        "tag.b": "yes",
    }


def test_a_placeholder_is_replaced_once_and_nothing_comes_from_here() -> None:
    facts: dict[str, dict[str, Any]] = {"params": {"a": "${scope.b}", "n": 3}, "scope": {"b": "secret"}, "runtime": {}}

    assert fill_placeholders(
        ["${params.a}", "${params.n}", "n=${params.n}", "${env.HOME}", "${params.none}"], facts
    ) == [
        *("${scope.b}", 3, "n=3", "${env.HOME}", "${params.none}"),
    ]


def test_the_times_are_set_by_their_own_names_and_fit_together() -> None:
    server = ServerSettings(runner_poll_timeout=20, runner_agent="codex")
    timing = RunnerTiming.from_settings(server, {"RUNNER_POLL_TIMEOUT": "10", "RUNNER_HEARTBEAT_INTERVAL": "100"})

    assert (timing.runner_poll_timeout, timing.lease_ms, timing.expires_ms) == (10, 250_000, None)
    assert timing.runner_agent == "codex"
    assert (RunnerTiming.from_settings(ServerSettings(), {}), RunnerTiming().lease_ms) == (RunnerTiming(), 150_000)
    assert RunnerTiming.from_settings(server, {"RUN_NO_MATCH_TIMEOUT": "300"}).expires_ms == 300_000
    with pytest.raises(Invalid, match="RUNNER_POLL_TIMEOUT"):
        RunnerTiming.from_settings(server, {"RUNNER_POLL_TIMEOUT": "31"})


def test_the_page_has_the_table_of_the_dialects() -> None:
    page = (Path(dialect_table.__file__).parent / "README.md").read_text(encoding="utf-8")
    rows = {row.split("|")[1].strip(): row for row in page.splitlines() if row.startswith("| ")}

    for place, each in enumerate(
        (dialect_table.DIALECT_A, dialect_table.DIALECT_B, dialect_table.DIALECT_RELEASES, dialect_table.DIALECT_C)
    ):
        cells = {name: row.split("|")[2 + place] for name, row in rows.items() if row.count("|") == 6}
        assert all(f'"{stop.key}"' in cells["is told to stop"] for stop in each.stops), each.name
        assert cells["and is answered"].strip() == str(each.accepted_status)
        assert ("tags" in cells["and is told in"]) == each.callback_in_tags
        assert ("executor" in cells["a session is made by"]) == (each.session_created_by == "executor")
        assert ("whole" in cells["a list is answered"]) != each.has_pages
