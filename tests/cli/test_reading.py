"""The commands that read: what they show in a pipe, in JSON, and that they change nothing."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from cli.conftest import Cli
from world import World

from agentq.coordinator.run import Outcome

FIELDS = [
    "id", "kind", "state", "reason", "queue", "priority", "attempt", "worker",
    "schedule", "created_at", "due_at", "claimed_at", "started_at", "finished_at", "waits_for", "agent", "outcome",
    "attempts", "spec",
]  # fmt: skip
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
NASTY = "a\x1b[31m\x07\tb\nc\u202e\x9b"


def finished(real: World, **fields: Any) -> str:
    claim = real.held("w1", started=True, **fields)
    assert real.queue.finish([(claim, Outcome(exit_code=0, result={"n": 1}, tail="the end\n"))]) == [None]
    return claim.id


def failed(real: World, **fields: Any) -> str:
    claim = real.held("w2", started=True, **fields)
    real.queue.fail(claim, Outcome.model_validate({"class": "exit", "exit_code": 3, "error": "exited with code 3"}))
    return claim.id


def test_a_run_in_json_has_exactly_these_fields(cli: Cli, real: World) -> None:
    run = finished(real, argv=["echo", "hi"], labels={"a": "b"}, queue="default")

    record = json.loads(cli("show", run, "--json").out)

    assert list(record) == FIELDS
    assert record["outcome"] == {"class": "ok", "exit_code": 0, "error": None, "result": {"n": 1}}
    assert record["spec"] == {"kind": "command", "argv": ["echo", "hi"], "labels": {"a": "b"}}
    assert [record[name] for name in FIELDS[1:8]] == ["command", "completed", None, "default", 5, 1, "w1"]
    assert record["due_at"] is None
    assert record["agent"] is None
    times = [record[name] for name in ("created_at", "claimed_at", "started_at", "finished_at")]
    assert all(TIME.fullmatch(time) for time in times)
    assert times == sorted(times)
    (attempt,) = record["attempts"]
    assert [attempt[name] for name in ("attempt", "worker", "verb")] == [1, "w1", None]
    assert attempt["outcome"]["tail"] == "the end\n"


def test_ls_and_wait_print_the_same_record_as_show(cli: Cli, real: World) -> None:
    run = finished(real)

    shown = cli("show", run, "--json").out

    assert cli("ls", "--json").out == shown
    assert cli("wait", run, "--json").out == shown


def test_ls_in_a_pipe_has_columns_between_tabs(cli: Cli, real: World) -> None:
    first, second = real.submit(argv=["make", "a b"], queue="other"), finished(real, name="second")

    rows = {row[0]: row[1:] for row in (line.split("\t") for line in cli("ls").lines)}

    assert list(rows) == sorted(rows, reverse=True)
    assert rows[first][:3] + rows[first][4:] == ["pending", "", "other", "", "make 'a b'"]
    assert rows[second][:3] + rows[second][4:] == ["completed", "exit 0", "default", "w1", "second"]
    assert TIME.fullmatch(rows[first][3])


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], ["completed", "failed", "other", "pending"]),
        (["--state", "failed"], ["failed"]),
        (["--state", "ended"], ["completed", "failed"]),
        (["--state", "live", "--state", "failed"], ["failed", "other", "pending"]),
        (["--queue", "other"], ["other"]),
        (["--label", "a=1"], ["completed", "pending"]),
        (["--label", "a=1", "--label", "b=2"], ["completed"]),
        (["--plan", "p"], ["other"]),
        (["--session", "s"], ["pending"]),
        (["--since", "1h"], ["completed", "failed", "other", "pending"]),
        (["--label", "a=1", "--limit", "1", "--state", "ended"], ["completed"]),
        (["--state", "waiting"], []),
    ],
)
def test_ls_filters(cli: Cli, real: World, options: list[str], expected: list[str]) -> None:
    finished(real, name="completed", labels={"a": "1", "b": "2"})
    real.submit(name="other", queue="other", plan="p")
    failed(real, name="failed")
    real.submit(name="pending", labels={"a": "1"}, session="s")

    assert sorted(line.split("\t")[6] for line in cli("ls", *options).lines) == expected


def test_ls_goes_on_below_a_cursor(cli: Cli, real: World) -> None:
    runs = [real.submit() for _ in range(5)]

    page = [line.split("\t")[0] for line in cli("ls", "--limit", "2").lines]
    rest = [line.split("\t")[0] for line in cli("ls", "--cursor", page[-1]).lines]

    assert len(page) == 2
    assert [*page, *rest] == sorted(runs, reverse=True)


def test_an_id_may_be_any_unique_beginning(cli: Cli, real: World) -> None:
    run = real.submit()
    real.submit()

    for text in (run, run[:24], run[4:24], run[4:24].upper(), run.upper()):
        assert json.loads(cli("show", text, "--json").out)["id"] == run


def test_show_tells_what_a_person_asks(cli: Cli, real: World) -> None:
    run = failed(real, argv=["sh", "-c", "exit 3"], cwd="/srv", env={"TOKEN": "secret"}, labels={"a": "b"})

    text = cli("show", run).out

    assert text.startswith(f"{run}  failed, exit 3\n")
    for words in ("sh -c 'exit 3'", "/srv", "TOKEN", "a=b", "1  on w2  for", "exit  exit 3", "exited with code 3"):
        assert words in text
    assert "secret" not in text


def test_nothing_that_a_terminal_obeys_gets_through(cli: Cli, real: World) -> None:
    run = real.submit(name=NASTY, argv=["echo", NASTY], cwd=f"/{NASTY}")
    real.queue.cancel(run, NASTY)

    for argv in (["ls"], ["show", run], ["why", run], ["events"], ["ls", "--json"], ["events", "--json"]):
        out = cli(*argv).out
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", out), argv
    assert json.loads(cli("show", run, "--json").out)["spec"]["name"] == NASTY
    assert len(cli("ls").lines) == 1


def test_why_says_where_a_run_stands(cli: Cli, real: World) -> None:
    run = real.submit(queue="lonely")

    answer = cli("why", run)
    assert answer.lines[0] == f"{run} is pending."
    assert answer.lines[1:3] == [
        "No worker is registered for its queue, lonely.",
        "Start one with `agentq worker --queue lonely`.",
    ]
    assert json.loads(cli("why", run, "--json").out)["because"] == answer.lines[1:]


def test_events_tell_what_happened_in_order(cli: Cli, real: World) -> None:
    first, second = finished(real), real.submit()

    rows = [line.split("\t") for line in cli("events").lines]
    assert [(row[1], row[2]) for row in rows] == [
        (first, "submitted"), (first, "claimed"), (first, "started"), (first, "completed"), (second, "submitted"),
    ]  # fmt: skip
    assert [line.split("\t")[2] for line in cli("events", "--run", first[:24], "--limit", "2").lines] == [
        "started",
        "completed",
    ]
    records = [json.loads(line) for line in cli("events", "--json", "--since", "1h").lines]
    names = ["id", "at", "partition", "event", "run", "state", "attempt", "worker", "detail", "plan"]
    assert list(records[0]) == names
    assert [record["state"] for record in records] == ["pending", "claimed", "running", "completed", "pending"]
    assert TIME.fullmatch(records[0]["at"])


def test_queue_ls_counts(cli: Cli, real: World) -> None:
    finished(real)
    real.submit(queue="b")
    real.submit(queue="b")

    assert cli("queue", "ls").lines == ["b\tpending\t2", "default\tcompleted\t1"]
    record = json.loads(cli("queue", "ls", "--json").lines[0])
    assert (record["queue"], record["pending"], record["failed"]) == ("b", 2, 0)


def test_config_tells_where_each_value_comes_from(
    cli: Cli, here: Any, monkeypatch: pytest.MonkeyPatch, real: World
) -> None:
    (here / "agentq.toml").write_text("lease_ms = 60000\ntick_ms = 4000\n[worker]\nslots = 3\n")
    monkeypatch.setenv("AGENTQ_TICK_MS", "3000")
    monkeypatch.setenv("AGENTQ_WORKER_QUEUES", "a,b")

    found = {line.split("\t")[0]: line.split("\t")[1:] for line in cli("--namespace", "other", "config").lines}

    assert found["namespace"] == ["other", "--namespace"]
    assert found["url"][1] == "AGENTQ_URL"
    assert found["tick_ms"] == ["3000", "AGENTQ_TICK_MS"]
    assert found["lease_ms"] == ["60000", str(here / "agentq.toml")]
    assert found["partitions"] == ["1", "default"]
    assert found["home"][1] == "default"
    assert found["worker.slots"] == ["3", str(here / "agentq.toml")]
    assert found["worker.queues"] == ["a,b", "AGENTQ_WORKER_QUEUES"]
    assert found["worker.labels"] == ["", "default"]
    record = json.loads(cli("config", "--json").lines[1])
    assert record == {"name": "namespace", "value": real.store.keyspace.namespace, "source": "AGENTQ_NAMESPACE"}


def test_config_shows_no_password(cli: Cli) -> None:
    answer = cli("--url", "redis://me:s3cret@localhost:1", "config")

    assert "redis://localhost:1/0" in answer.out
    assert "s3cret" not in answer.out


def test_reading_changes_nothing(cli: Cli, real: World) -> None:
    """P7, for every command that reads."""
    runs = [finished(real), failed(real), real.submit(), real.submit(delay_ms=10_000)]
    real.submit(after=[runs[2]])
    reading = [
        ["ls"], ["ls", "--json"], ["show", *runs], ["why", runs[2]], ["why", runs[3]], ["events"], ["queue", "ls"],
        ["worker", "ls"], ["worker", "show", "w1"], ["doctor"], ["config"], ["logs", runs[0]], ["wait", runs[0]],
    ]  # fmt: skip

    with real.unchanged():
        codes = [cli(*argv).code for argv in reading]

    assert set(codes) <= {0, 1}


def test_a_reader_writes_no_schema(cli: Cli, real: World) -> None:
    for argv in (["ls"], ["queue", "ls"], ["worker", "ls"], ["doctor"], ["events"]):
        cli(*argv)

    assert real.dump() == {f"{real.store.keyspace.root} pending": {}}
