"""The commands that read: what they show in a pipe, in JSON, and that they change nothing."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from cli.conftest import Cli
from support.world import World

from agentq.coordinator.model.spec import Outcome, RunSpec
from agentq.coordinator.plans.verbs import Plans, TaskSubmission
from agentq.coordinator.runs.rq_titles import PERFORM_FUNCTION
from agentq.coordinator.storage.scripts import SCRIPTS

FIELDS = [
    "id", "kind", "state", "reason", "queue", "priority", "attempt", "worker", "schedule",
    "made_by", "created_at", "due_at", "claimed_at", "started_at", "finished_at", "waits_for", "agent", "outcome",
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


def test_the_agent_of_a_run_is_shown_beside_its_name(cli: Cli, real: World) -> None:
    run = real.submit(kind="agent", agent="claude", prompt="Write the changelog.", argv=(), name="changelog")

    pairs = dict(line.strip().split("  ", 1) for line in cli("show", run).lines[1:] if "  " in line.strip())
    assert (pairs["name"].strip(), pairs["agent"].strip()) == ("changelog", "claude")
    assert pairs["prompt"].strip() == "Write the changelog."
    assert cli("ls").lines[0].split("\t")[-1] == "claude: changelog"


def test_a_job_of_rq_is_shown_by_rqs_description_of_it(cli: Cli, real: World) -> None:
    fields: dict[str, Any] = {"kind": "function", "function": PERFORM_FUNCTION, "argv": ()}
    job = f"job-of-{real.store.keyspace.namespace}"
    known, gone = (real.submit(**fields, args=[each, "default", ""]) for each in (job, "forgotten"))
    real.store.connection.command("HSET", f"rq:job:{job}", "description", "reports.build(5)")
    try:
        shown = {line.split("\t")[0]: line.split("\t")[-1] for line in cli("ls").lines}
        assert shown[known] == "reports.build(5)"
        assert shown[gone] == PERFORM_FUNCTION + '("forgotten", "default", "")'
        assert "reports.build(5)" in cli("show", known).out
    finally:
        real.store.connection.command("DEL", f"rq:job:{job}")


def test_plan_show_names_the_agent_of_each_task(cli: Cli, real: World) -> None:
    agent = RunSpec(kind="agent", agent="claude", prompt="Write it.")
    plan = Plans(real.queue).create(
        "shop", [TaskSubmission("docs", agent), TaskSubmission("tests", RunSpec(kind="command", argv=["x"]))]
    )

    rows = {row[0]: row for row in (line.split("\t") for line in cli("plan", "show", plan).lines)}
    told = {task["id"]: task["agent"] for task in json.loads(cli("plan", "show", plan, "--json").out)["tasks"]}

    assert (rows["docs"][2], rows["tests"][2]) == ("claude", "")
    assert told == {"docs": "claude", "tests": None}


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
    assert [(row[1], row[2]) for row in rows if row[1]] == [
        (first, "submitted"), (first, "claimed"), (first, "started"), (first, "completed"), (second, "submitted"),
    ]  # fmt: skip
    assert [line.split("\t")[2] for line in cli("events", "--run", first[:24], "--limit", "2").lines] == [
        "started",
        "completed",
    ]
    records = [json.loads(line) for line in cli("events", "--json", "--since", "1h").lines]
    names = ["id", "at", "partition", "event", "run", "state", "attempt", "worker", "detail", "plan"]
    assert list(records[0]) == names
    records = [record for record in records if record["run"]]
    assert [record["state"] for record in records] == ["pending", "claimed", "running", "completed", "pending"]
    assert TIME.fullmatch(records[0]["at"])


def test_queue_ls_counts(cli: Cli, real: World) -> None:
    finished(real)
    real.submit(queue="b")
    real.submit(queue="b")

    rows = {row[0]: row[1:] for row in (line.split("\t") for line in cli("queue", "ls").lines)}
    assert rows["b"][:10] == ["0", "0", "2", *["0"] * 7]
    assert TIME.fullmatch(rows["b"][10]), "when the oldest came"
    assert rows["default"][:11] == [*["0"] * 6, "1", "0", "0", "0", ""]
    assert len(rows["b"]) == len(rows["default"]) == 14
    record = json.loads(cli("queue", "ls", "--json").lines[0])
    assert (record["queue"], record["pending"], record["failed"]) == ("b", 2, 0)


@pytest.mark.redis_only("a coordinator knows its namespace by itself")
def test_config_tells_where_each_value_comes_from(
    cli: Cli, here: Any, monkeypatch: pytest.MonkeyPatch, real: World
) -> None:
    (here / "agentq.toml").write_text("lease_ms = 60000\ntick_ms = 4000\n[worker]\nslots = 3\n")
    monkeypatch.setenv("AGENTQ_CONFIG", str(here / "agentq.toml"))
    monkeypatch.setenv("AGENTQ_TICK_MS", "3000")
    monkeypatch.setenv("AGENTQ_WORKER_QUEUES", "a,b")

    found = {line.split("\t")[0]: line.split("\t")[1:] for line in cli("--namespace", "other", "config").lines}

    assert found["namespace"] == ["other", "--namespace"]
    assert found["url"][1] == "AGENTQ_URL"
    assert found["tick_ms"] == ["3000", "AGENTQ_TICK_MS"]
    assert found["lease_ms"] == ["60000", str(here / "agentq.toml")]
    assert found["partitions"] == ["1", "default"]
    assert found["home"][1] == "default"
    assert found["worker.redact"][0] == "true"
    assert found["worker.slots"] == ["3", str(here / "agentq.toml")]
    assert found["worker.queues"] == ["a,b", "AGENTQ_WORKER_QUEUES"]
    assert found["worker.labels"] == ["", "default"]
    record = json.loads(cli("config", "--json").lines[1])
    assert record == {"name": "namespace", "value": real.store.keyspace.namespace, "source": "AGENTQ_NAMESPACE"}


def test_config_shows_no_password(cli: Cli) -> None:
    answer = cli("--url", "redis://me:s3cret@localhost:1", "config")

    assert "redis://localhost:1/0" in answer.out
    assert "s3cret" not in answer.out


def test_reading_changes_nothing(cli: Cli, real: World, backend: str) -> None:
    """P7, for every command that reads."""
    runs = [finished(real), failed(real), real.submit(), real.submit(delay_ms=10_000)]
    real.submit(after=[runs[2]])
    reading = [
        ["ls"], ["ls", "--json"], ["show", *runs], ["why", runs[2]], ["why", runs[3]], ["events"], ["queue", "ls"],
        ["worker", "ls"], ["worker", "show", "w1"], ["config"], ["logs", runs[0]], ["wait", runs[0]],
        *([["doctor"]] if backend == "redis" else []),
    ]  # fmt: skip

    with real.unchanged():
        codes = [cli(*argv).code for argv in reading]

    assert set(codes) <= {0, 1}


@pytest.mark.redis_only("the coordinator writes it")
def test_a_reader_writes_no_schema(cli: Cli, real: World) -> None:
    for argv in (["ls"], ["queue", "ls"], ["worker", "ls"], ["doctor"], ["events"]):
        cli(*argv)

    assert real.dump() == {f"{real.store.keyspace.root} pending": {}}


def test_a_worker_that_is_not_heard_is_shown_as_silent_and_until_when_it_is_waited_for(
    cli: Cli, real: World, backend: str
) -> None:
    """Killed 22 s ago, with a lease of 30 s."""
    held = real.held("w1", started=True)
    command, now_ms = real.store.connection.command, real.store.time_ms()
    command("HSET", real.store.key(0, "worker", "w1"), "seen_at_ms", now_ms - 22_000)
    command("ZADD", real.store.key(0, "workers"), now_ms + 8_000, "w1")

    listed = cli("worker", "ls")
    assert listed.lines[0].split("\t")[1] == "silent"
    assert re.search(r"w1 has sent no heartbeat for 2\d(\.\d)? s and is declared lost in \d+(\.\d)? s\.", listed.err)
    assert "has sent no heartbeat" in cli("worker", "show", "w1").out
    assert cli("why", held.id).lines[1].strip().startswith("Its worker w1 has sent no heartbeat for 2")
    if backend != "redis":
        return
    diagnosis = cli("doctor").out
    assert re.search(r"warn workers +1 of 1 cannot be heard: w1 has sent no heartbeat for 2", diagnosis)
    assert re.search(r"warn orphans +1 held run has a worker that cannot be heard: w1", diagnosis)


@pytest.mark.redis_only("doctor looks at Redis itself")
def test_doctor_finds_data_without_a_marker(cli: Cli, real: World) -> None:
    real.submit()
    marker = f"{real.store.keyspace.root}schema"
    command = real.store.connection.command
    before = command("GETDEL", marker)

    found = cli("doctor").out

    command("SET", marker, before)
    assert "holds data without a marker" in found


def test_a_script_is_printed_as_the_server_gets_it(cli: Cli, real: World) -> None:
    whole = cli("debug", "script", "worker/claim").out.rstrip("\n")

    assert real.store.connection.command("SCRIPT", "LOAD", whole) == SCRIPTS["worker/claim"].assemble().sha
    assert cli("debug", "script").out.split() == sorted(SCRIPTS)
