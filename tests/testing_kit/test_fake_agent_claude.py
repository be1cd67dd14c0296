"""The fake agent for Claude Code."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from support.servers import until

FLAGS = ("-p", "--output-format", "stream-json", "--verbose", "--permission-mode", "acceptEdits")
SESSION = "0c1f7e5a-8a52-4b5e-9c1e-2f6d3b7a9e10"


class Standin:
    """It, in a folder and with conversations of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "claude"

    def start(self, prompt: str, *flags: str, attempt: int = 1) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "agentq.testing.fake_agent", "--as", "claude", *FLAGS, *flags],
            cwd=self.folder, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={**os.environ, "CLAUDE_CONFIG_DIR": str(self.home), "AGENTQ_ATTEMPT": str(attempt)},
        )  # fmt: skip
        assert process.stdin is not None
        with suppress(BrokenPipeError), process.stdin:  # some end before they read
            process.stdin.write(prompt)
        process.stdin = None
        return process

    def run(self, prompt: str, *flags: str, code: int = 0, attempt: int = 1) -> list[dict[str, Any]]:
        with self.start(prompt, *flags, attempt=attempt) as process:
            out, self.error = process.communicate(timeout=60)
        assert process.returncode == code, self.error
        return [json.loads(line) for line in out.splitlines()]


@pytest.fixture
def standin(tmp_path: Path) -> Standin:
    return Standin(tmp_path)


def of_type(events: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [event for event in events if event["type"] == kind]


def blocks(events: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    messages = [event["message"] for event in events if event["type"] in ("assistant", "user")]
    return [block for message in messages for block in message["content"] if block["type"] == kind]


def test_what_is_no_step_is_said(standin: Standin) -> None:
    events = standin.run("Good morning.\nHow are you?")

    assert [block["text"] for block in blocks(events, "text")] == ["Good morning.\nHow are you?"]
    assert events[0]["subtype"] == "init"
    assert events[-1]["type"] == "result"
    assert events[-1]["result"] == "Good morning.\nHow are you?"


def test_its_tools_really_work_and_tell_how_they_ended(standin: Standin) -> None:
    events = standin.run("WRITE made/a.txt one\\ntwo\nRUN cat made/a.txt; exit 3")

    assert (standin.folder / "made/a.txt").read_text() == "one\ntwo\n"
    assert [block["name"] for block in blocks(events, "tool_use")] == ["Write", "Bash"]
    assert blocks(events, "tool_result")[1]["content"] == "Exit code 3\none\ntwo\n"
    assert blocks(events, "tool_result")[1]["is_error"] is True


def test_a_tool_that_is_not_allowed_is_not_used_and_the_turn_is_a_success(standin: Standin) -> None:
    events = standin.run("WRITE a.txt no", "--permission-mode", "default")

    assert not (standin.folder / "a.txt").exists()
    assert events[-1]["subtype"] == "success"
    assert [denied["tool_name"] for denied in events[-1]["permission_denials"]] == ["Write"]
    assert [event["tool_name"] for event in of_type(events, "system")[1:]] == ["Write"]


def test_a_conversation_goes_on_in_another_folder_and_its_cost_is_a_running_total(standin: Standin) -> None:
    standin.run("COST 0.25\nTOKENS 1000 10", "--session-id", SESSION)
    elsewhere = Standin(standin.folder / "elsewhere")
    elsewhere.folder.mkdir()
    elsewhere.home = standin.home

    result = elsewhere.run("COST 0.5\nTOKENS 1 1\nREPORT prompts", "--resume", SESSION)[-1]

    assert result["result"] == "2"
    assert result["session_id"] == SESSION
    assert result["total_cost_usd"] == 0.75
    assert result["modelUsage"]["standin-1"]["inputTokens"] == 1001
    assert result["usage"]["input_tokens"] == 1


def test_a_conversation_file_alone_is_enough_to_go_on_elsewhere(standin: Standin, tmp_path: Path) -> None:
    standin.run("hello", "--session-id", SESSION)
    (file,) = standin.home.glob(f"projects/*/{SESSION}.jsonl")
    other = Standin(tmp_path)
    other.home = tmp_path / "other"
    (other.home / "projects/-somewhere").mkdir(parents=True)
    file.rename(other.home / "projects/-somewhere" / file.name)

    assert other.run("REPORT prompts", "--resume", SESSION)[-1]["result"] == "2"


def test_a_fork_knows_all_that_was_said_and_leaves_the_first_alone(standin: Standin) -> None:
    standin.run("one", "--session-id", SESSION)

    forked = standin.run("REPORT prompts", "--resume", SESSION, "--fork-session")[-1]

    assert forked["result"] == "2"
    assert forked["session_id"] != SESSION
    assert standin.run("REPORT prompts", "--resume", SESSION)[-1]["result"] == "2"


@pytest.mark.parametrize(
    ("flags", "error"),
    [
        (("--resume", SESSION[:-1] + "1"), f"No conversation found with session ID: {SESSION[:-1]}1\n"),
        (("--session-id", SESSION), f"Error: Session ID {SESSION} is already in use.\n"),
        (("--session-id", "monday"), "Error: Invalid session ID. Must be a valid UUID.\n"),
        (("--no-such-flag",), "error: unrecognized arguments: --no-such-flag\n"),
    ],
)
def test_what_it_cannot_begin_with_is_one_line_of_prose(standin: Standin, flags: tuple[str, ...], error: str) -> None:
    standin.run("hello", "--session-id", SESSION)

    assert standin.run("hello", *flags, code=1) == []
    assert standin.error == error


def test_an_empty_prompt_is_refused(standin: Standin) -> None:
    assert standin.run(" \n", code=1) == []


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("AUTH", {"subtype": "success", "is_error": True, "api_error_status": 401, "terminal_reason": "api_error"}),
        ("THROTTLE", {"subtype": "success", "is_error": True, "api_error_status": 429}),
        ("OVERLOAD", {"is_error": True, "api_error_status": 529}),
        ("CREDIT", {"is_error": True, "result": "Credit balance is too low"}),
        ("CONTEXT", {"is_error": True, "terminal_reason": "prompt_too_long"}),
        ("REFUSE", {"is_error": True, "stop_reason": "refusal"}),
        ("FAIL because", {"subtype": "error_during_execution", "errors": ["because"]}),
        ("LIMIT 10m", {"is_error": True, "api_error": "usage_limit_reached"}),
    ],
)
def test_each_bad_end_is_told_as_the_real_one_tells_it(
    standin: Standin, prompt: str, expected: dict[str, object]
) -> None:
    result = standin.run(f"I begin.\n{prompt}", code=1)[-1]

    assert expected.items() <= result.items()


def test_a_limit_says_when_it_ends(standin: Standin) -> None:
    before_s = time.time()

    (event,) = of_type(standin.run("LIMIT 10m", code=1), "rate_limit_event")

    assert event["rate_limit_info"]["status"] == "rejected"
    assert 599 <= event["rate_limit_info"]["resetsAt"] - before_s <= 660


def test_it_stops_where_its_turns_and_its_money_end(standin: Standin) -> None:
    assert standin.run("TURNS 9", "--max-turns", "2", code=1)[-1]["subtype"] == "error_max_turns"
    spent = standin.run("COST 0.5\nCOST 0.6\nCOST 9", "--max-budget-usd", "1", code=1)[-1]
    assert spent["subtype"] == "error_max_budget_usd"
    assert spent["total_cost_usd"] == 1.1


def test_a_step_of_the_second_attempt_is_none_of_the_first(standin: Standin) -> None:
    assert standin.run("AT 2 CRASH 7\nfine", attempt=1)[-1]["result"] == "fine"
    standin.run("AT 2 CRASH 7\nfine", attempt=2, code=7)


def test_a_crash_has_no_last_word(standin: Standin) -> None:
    events = standin.run("I begin.\nCRASH", code=-signal.SIGKILL)

    assert of_type(events, "result") == []


def test_after_a_wish_to_be_woken_the_result_is_not_the_end(standin: Standin) -> None:
    events = standin.run("WAKE 1s REPORT prompts")

    assert [event["type"] for event in events if event["type"] in ("system", "result")] == [
        "system", "result", "system", "result"
    ]  # fmt: skip
    assert [result["result"] for result in of_type(events, "result")] == ["I shall go on later.", "2"]
    assert blocks(events, "tool_use")[0]["input"]["delaySeconds"] == 1


@pytest.mark.full("takes 2 s")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 0)])
def test_a_signal_ends_it_and_its_tool(standin: Standin, number: signal.Signals, code: int) -> None:
    with standin.start("RUN echo $$ > pid; sleep 600") as process:
        pid = standin.folder / "pid"
        until(lambda: pid.exists() and pid.read_text().strip(), "the tool to run")
        process.send_signal(number)
        assert process.wait(timeout=20) == code
        process.communicate()
    until(lambda: not Path(f"/proc/{pid.read_text().strip()}").exists(), "the tool to end")


def test_its_tool_outlives_a_sigkill(standin: Standin) -> None:
    with standin.start("RUN echo $$ > pid; exec sleep 600") as process:
        file = standin.folder / "pid"
        until(lambda: file.exists() and file.read_text().strip(), "the tool to run")
        process.kill()
        process.wait(timeout=20)
        tool = int(file.read_text())
        assert os.getsid(tool) == tool
        os.kill(tool, signal.SIGKILL)


def test_silent_says_nothing_and_a_stubborn_one_has_to_be_killed(standin: Standin) -> None:
    with standin.start("STUBBORN\nstubborn now\nHANG") as process:
        assert process.stdout is not None
        assert "init" in process.stdout.readline()
        assert "stubborn now" in process.stdout.readline()
        process.terminate()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=0.3)
        process.kill()
    with standin.start("SILENT") as process:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=0.3)
        process.kill()
        assert process.communicate()[0] == ""


def test_it_lingers_after_its_last_word_and_leaves_a_grandchild(standin: Standin) -> None:
    with standin.start("GRANDCHILD 1m\nLINGER") as process:
        assert process.stdout is not None
        lines = [json.loads(process.stdout.readline()) for _ in range(3)]
        assert lines[-1]["type"] == "result"
        assert process.poll() is None
        child = int(lines[1]["message"]["content"][0]["text"].split()[3])
        assert os.getsid(child) == child
        process.kill()
    os.kill(child, signal.SIGKILL)
