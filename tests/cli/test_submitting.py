"""`agentq submit`: from what is typed to the spec."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli.conftest import Cli
from support.world import World

from agentq.coordinator.clock import wall_ms
from agentq.coordinator.model.spec import Outcome

SPECS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "queue": (["--queue", "builds"], {"queue": "builds"}),
    "the least priority": (["--priority", "0"], {"priority": 0}),
    "name": (["--name", "nightly"], {"name": "nightly"}),
    "labels": (["--label", "a=1", "--label", "b=x/y"], {"labels": {"a": "1", "b": "x/y"}}),
    "demands": (["--demand", "gpu=a100"], {"demands": {"gpu": "a100"}}),
    "demands of all kinds": (
        ["--demand", "zone=b|a", "--demand", "os!=mac", "--demand", "version>=0.2"],
        {"demands": {"zone": "a|b", "os": "!=mac", "version": ">=0.2"}},
    ),
    "delay": (["--delay", "1h30m"], {"delay_ms": 5_400_000}),
    "expires": (["--expires", "90s"], {"expires_ms": 90_000}),
    "retries": (["--retries", "3"], {"retry": {"failures": 3}}),
    "timeouts": (
        ["--timeout", "2m", "--silence", "10s", "--grace", "500ms"],
        {"timeout_ms": 120_000, "silence_timeout_ms": 10_000, "stop_grace_ms": 500},
    ),
    "caps": (
        ["--memory", "512M", "--cpu-time", "90s", "--nice", "5"],
        {"caps": {"memory_bytes": 512 << 20, "cpu_s": 90, "nice": 5}},
    ),
    "no niceness": (["--nice", "0"], {"caps": {"nice": 0}}),
    "environment": (
        ["--env", "A=1=2", "--env", "B=", "--env-from", "HERE"],
        {"env": {"HERE": "x", "A": "1=2", "B": ""}},
    ),
    "cwd": (["--cwd", "/tmp"], {"cwd": "/tmp"}),
    "dedupe key": (["--dedupe-key", "k", "--if-live", "replace"], {"dedupe_key": "k", "if_live": "replace"}),
    "fixed backoff": (
        ["--retries", "5", "--backoff", "fixed", "--retry-delay", "2s"],
        {"retry": {"failures": 5, "factor": 1.0, "delay_ms": 2000}},
    ),
    "listed backoff": (
        ["--retries", "5", "--backoff", "10s,1m,5m"],
        {"retry": {"failures": 5, "delays_ms": [10_000, 60_000, 300_000]}},
    ),
    "no jitter": (
        ["--retries", "1", "--no-jitter", "--retry-delay-max", "10s", "--max-elapsed", "2h"],
        {"retry": {"failures": 1, "jitter": False, "delay_ms_max": 10_000, "max_elapsed_ms": 7_200_000}},
    ),
    "retries by class": (
        ["--retry-on", "exit=5", "--retry-on", "timeout=1,5m", "--never-retry", "spawn"],
        {
            "retry": {
                "only": ["exit", "timeout"],
                "final": ["spawn"],
                "classes": {"exit": {"retries": 5}, "timeout": {"retries": 1, "delay_ms": 300_000, "factor": 1.0}},
            }
        },
    ),
    "a key for a while": (
        ["--dedupe-key", "k", "--if-live", "reject", "--dedupe-ttl", "10m"],
        {"dedupe_key": "k", "if_live": "reject", "dedupe_ttl_ms": 600_000},
    ),
    "debounce": (
        ["--dedupe-key", "k", "--if-live", "debounce", "--delay", "5s", "--debounce-max", "1m"],
        {"dedupe_key": "k", "if_live": "debounce", "delay_ms": 5000, "debounce_max_ms": 60_000},
    ),
    "follow": (["--dedupe-key", "k", "--if-live", "follow"], {"dedupe_key": "k", "if_live": "follow"}),
    "keep": (["--keep", "2d"], {"keep_ms": 2 * 86_400_000}),
    "durable": ([], {}),
}

CALLS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "positions": (["shop:price", '[1, "tea"]'], {"args": [1, "tea"]}),
    "keywords": (["shop:price", '{"order": 1}'], {"kwargs": {"order": 1}}),
    "nothing": (["shop:price"], {}),
    "after two dashes": (["shop:price", "--", "[1]"], {"args": [1]}),
    "with other options": (["shop:price", "--queue", "mail", "--retries", "2", "[1]"], {"args": [1], "queue": "mail"}),
}


def spec_of(cli: Cli, run: str) -> dict[str, Any]:
    spec: dict[str, Any] = json.loads(cli("show", run, "--json").out)["spec"]
    return spec


@pytest.mark.parametrize(("options", "expected"), SPECS.values(), ids=SPECS.keys())
def test_each_option_fills_its_field(
    cli: Cli, here: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], expected: dict[str, Any]
) -> None:
    monkeypatch.setenv("HERE", "x")
    answer = cli("submit", *options, "--", "echo", "-n", "--json")

    assert answer.code == 0, answer.err
    assert spec_of(cli, answer.out.strip()) == {
        "kind": "command",
        "argv": ["echo", "-n", "--json"],
        "cwd": str(here),
        **expected,
    }


def test_what_follows_the_command_is_the_commands_own(cli: Cli) -> None:
    answer = cli("submit", "--queue", "a", "--", "make", "-j4", "--queue", "b", "--", "x")

    spec = spec_of(cli, answer.out.strip())
    assert spec["argv"] == ["make", "-j4", "--queue", "b", "--", "x"]
    assert spec["queue"] == "a"


def test_at_is_the_next_time_the_clock_shows_it(cli: Cli) -> None:
    answer = cli("submit", "--at", "14:30", "--", "true")

    due = spec_of(cli, answer.out.strip())["due_at_ms"]
    assert wall_ms() < due <= wall_ms() + 25 * 3_600_000
    assert due % 60_000 == 0


def test_after_takes_beginnings_of_ids(cli: Cli, real: World) -> None:
    first = real.submit()

    answer = cli("submit", "--after", first[4:22], "--on-failed", "run", "--", "true")

    assert real.get(answer.out.strip()).spec.after == (first,)
    assert real.state(answer.out.strip()) == "blocked"


def test_stdin_comes_from_a_file_or_from_here(cli: Cli, here: Path) -> None:
    (here / "input").write_text("from a file\n")

    from_file = cli("submit", "--stdin", "input", "--", "cat").out.strip()
    from_here = cli("submit", "--stdin", "-", "--", "cat", stdin="from here ✓\n").out.strip()

    assert spec_of(cli, from_file)["stdin"] == "from a file\n"
    assert spec_of(cli, from_here)["stdin"] == "from here ✓\n"


def test_a_live_run_with_the_key_is_returned_and_said(cli: Cli) -> None:
    first = cli("submit", "--dedupe-key", "k", "--json", "--", "true")
    second = cli("submit", "--dedupe-key", "k", "--json", "--", "true")

    run = json.loads(first.out)["id"]
    assert json.loads(first.out) == {"id": run, "created": True, "unmet": []}
    assert json.loads(second.out) == {"id": run, "created": False, "unmet": []}
    assert second.err == f"agentq: {run} has this dedupe key; nothing new was submitted.\n"
    assert second.code == 0


def test_many_runs_come_from_lines_of_json(cli: Cli, real: World, here: Path) -> None:
    lines = [{"argv": ["echo", str(number)], "queue": "many", "cwd": None} for number in range(3)]
    lines[0].pop("cwd")
    (here / "runs.jsonl").write_text("\n".join(json.dumps(line) for line in lines))

    answer = cli("submit", "--from-jsonl", "runs.jsonl")

    assert answer.code == 0
    specs = [real.get(run).spec for run in answer.lines]
    assert [spec.argv[1] for spec in specs] == ["0", "1", "2"]
    assert [spec.cwd for spec in specs] == [str(here), None, None]


def test_what_show_prints_can_be_submitted_again(cli: Cli, real: World) -> None:
    first = cli("submit", "--queue", "q", "--retries", "2", "--label", "a=b", "--delay", "1h", "--", "true").out.strip()

    again = cli("submit", "--from-jsonl", "-", stdin=json.dumps(spec_of(cli, first))).out.strip()

    assert again != first
    assert real.get(again).spec == real.get(first).spec


def test_one_refused_line_keeps_nobody_else_out(cli: Cli, real: World) -> None:
    live = real.submit(dedupe_key="k")
    lines = [{"argv": ["a"]}, {"argv": ["b"], "dedupe_key": "k", "if_live": "reject"}, {"argv": ["c"]}]

    answer = cli("submit", "--from-jsonl", "-", stdin="\n".join(map(json.dumps, lines)))

    assert answer.code == 5
    assert len(answer.lines) == 2
    assert live in answer.err


@pytest.mark.parametrize(("exit_code", "code"), [(0, 0), (3, 1)])
def test_waiting_ends_with_the_run_and_tells_how(
    cli: Cli, real: World, exit_code: int, code: int, background: Any
) -> None:
    background(lambda claim: _end(real, claim, exit_code))

    answer = cli("submit", "--wait", "--json", "--", "true")

    record = json.loads(answer.out)
    assert record["outcome"]["exit_code"] == exit_code
    assert record["state"] == ("failed" if exit_code else "completed")
    assert answer.code == code
    assert answer.err == ""


def _end(real: World, claim: Any, exit_code: int) -> None:
    if exit_code:
        real.queue.fail(claim, Outcome.model_validate({"class": "exit", "exit_code": exit_code}))
    else:
        real.queue.finish([(claim, Outcome(exit_code=0))])


def test_waiting_gives_up_when_told_to(cli: Cli) -> None:
    run = cli("submit", "--queue", "lonely", "--", "true").out.strip()

    answer = cli("wait", run, "--timeout", "10ms")

    assert answer.code == 124
    assert answer.err == f"agentq: The run {run} has not ended in time; it is pending.\n"


def test_what_nobody_can_meet_is_taken_and_said_at_once(cli: Cli, real: World) -> None:
    real.worker("w1", labels={"gpu": "t4"})

    answer = cli("submit", "--demand", "gpu=a100|h100", "--json", "--", "true")
    met = cli("submit", "--demand", "gpu!=a100", "--json", "--", "true")

    assert json.loads(answer.out)["unmet"] == ["gpu=a100|h100"]
    assert answer.code == 0
    assert answer.err == (
        "agentq: It demands gpu=a100|h100, and no worker registered for its queue, default, offers that. "
        "Start one with `agentq worker --queue default --label gpu=a100`.\n"
    )
    assert json.loads(met.out)["unmet"] == []
    assert met.err == ""


def test_of_many_runs_with_the_same_demands_it_is_said_once(cli: Cli) -> None:
    lines = [json.dumps({"argv": ["true"], "demands": {"gpu": "a100"}})] * 5

    answer = cli("submit", "--from-jsonl", "-", stdin="\n".join(lines))

    assert len(answer.lines) == 5
    assert answer.err.count("\n") == 1


@pytest.mark.parametrize(("typed", "fields"), CALLS.values(), ids=CALLS)
def test_a_function_is_submitted_by_its_path(cli: Cli, typed: list[str], fields: dict[str, Any]) -> None:
    run = cli("submit", "--function", *typed).out.strip()

    spec = spec_of(cli, run)
    assert {name: spec.get(name) for name in ("kind", "function", *fields)} == {
        "kind": "function",
        "function": "shop:price",
        **fields,
    }
    assert "argv" not in spec
    assert "cwd" not in spec


def test_a_call_is_shown_with_its_arguments(cli: Cli) -> None:
    run = cli("submit", "--function", "shop:price", '{"order": 1, "goods": ["tea"]}').out.strip()

    assert 'shop:price(order=1, goods=["tea"])' in cli("show", run).out
