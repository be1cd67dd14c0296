"""The fake agent for Codex."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

UNKNOWN = "0c1f7e5a-8a52-4b5e-9c1e-2f6d3b7a9e10"


def codex(folder: Path, prompt: str, *words: str, code: int = 0) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "agentq.testing.fake_agent", "--as", "codex", "exec", *words, "--json", "-"],
        cwd=folder, input=prompt, capture_output=True, text=True, timeout=60,
        env={**os.environ, "CODEX_HOME": str(folder / "codex"), "TZ": "UTC"},
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def texts(events: list[dict[str, Any]]) -> list[str]:
    return [event["item"]["text"] for event in events if event.get("item", {}).get("type") == "agent_message"]


def test_a_thread_goes_on_and_its_usage_is_a_running_total(tmp_path: Path) -> None:
    first = codex(tmp_path, "TOKENS 1000 10\nhello")
    thread = first[0]["thread_id"]

    second = codex(tmp_path, "TOKENS 1 1\nREPORT prompts", "resume", thread)

    assert second[0]["thread_id"] == thread
    assert texts(second) == ["2"]
    assert (first[-1]["usage"]["input_tokens"], second[-1]["usage"]["input_tokens"]) == (1000, 1001)


def test_an_unknown_thread_is_exit_code_1_and_prose(tmp_path: Path) -> None:
    assert codex(tmp_path, "hello", "resume", UNKNOWN, code=1) == []


def test_its_sandbox_refuses_and_the_turn_is_a_success(tmp_path: Path) -> None:
    refused = codex(tmp_path, "WRITE a.txt text")
    assert not (tmp_path / "a.txt").exists()
    assert refused[-1]["type"] == "turn.completed"

    written = codex(tmp_path, "WRITE a.txt text\nRUN cat a.txt", "-s", "workspace-write")
    assert (tmp_path / "a.txt").read_text() == "text\n"
    items = [event["item"] for event in written if event["type"] == "item.completed"]
    assert items[0]["changes"] == [{"path": str(tmp_path / "a.txt"), "kind": "add"}]
    assert (items[1]["command"], items[1]["aggregated_output"]) == ("cat a.txt", "text\n")


def test_a_limit_is_told_in_prose_alone(tmp_path: Path) -> None:
    events = codex(tmp_path, "LIMIT 100h", code=1)

    assert [event["type"] for event in events[-2:]] == ["error", "turn.failed"]
    assert events[-1]["error"]["message"].startswith("You’ve hit your usage limit.")
    assert " try again at " in events[-1]["error"]["message"]
