"""Our own language, for programs that were made to run here."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.agent_output import read
from support.generated_docs import ROOT

from agentq.coordinator.model.agent_events import SpendingEvent, TextEvent, ToolCallEvent, UnknownEvent
from agentq.worker.agents.profiles.registry import ProfileRegistry
from agentq.worker.agents.reader import PriorConversation
from agentq.worker.agents.verdicts import VerdictKind as Kind

RESULT = {"type": "result", "ok": True, "text": "Done."}


def facts(**told: Any) -> dict[str, Any]:
    return {"type": "facts", **told}


def test_each_line_is_a_doing() -> None:
    lines: list[dict[str, Any]] = [
        {"type": "began", "session": "s1", "model": "m"},
        {"type": "turn", "number": 1},
        {"type": "thought", "text": "hm"},
        {"type": "tool", "id": "t", "tool": "sh", "about": "ls", "input": {"a": [1]}},
        {"type": "tool_end", "id": "t", "tool": "sh", "ok": True, "text": "x"},
        {"type": "file", "path": "a", "how": "added"},
        {"type": "plan", "items": [["a", "todo"]]},
        {"type": "spent", "cost_usd": 0.5, "input_tokens": 10, "output_tokens": 2, "turns": 1},
        {"type": "text", "text": "Hi"},
        RESULT,
    ]
    reading = read("agentq", lines)

    assert reading.types == [line["type"] for line in lines]
    assert reading.of(ToolCallEvent)[0].input == {"a": [1]}
    assert (reading.facts.session, reading.facts.model, reading.facts.text) == ("s1", "m", "Done.")
    assert reading.facts.spent == SpendingEvent(cost_usd=0.5, input_tokens=10, output_tokens=2, turns=1)
    assert reading.judged(0).kind is Kind.OK


def test_without_a_result_there_is_none() -> None:
    assert read("agentq", [{"type": "text", "text": "Hi"}]).judged(0).kind is Kind.NO_RESULT


def test_a_bad_result_says_why() -> None:
    verdict = read("agentq", [{"type": "result", "ok": False, "text": "It broke."}]).judged(0)

    assert verdict.kind is Kind.AGENT_ERROR
    assert verdict.error == "It broke."


def test_facts_say_how_it_went_and_are_not_told() -> None:
    told = facts(session="s2", kind="limited", reset_at_ms=1_795_049_782_000, error="Full.", totals={"other": 2})
    reading = read("agentq", [told, {"type": "result", "ok": False}, facts(structured=[1], denials=["sh"])])

    assert reading.types == ["result"]
    assert reading.facts.totals == {}, "a total that nobody counts is not kept"
    assert reading.facts.structured == [1]
    verdict = reading.judged(1)
    assert (verdict.kind, verdict.reset_at_ms) == (Kind.LIMITED, 1_795_049_782_000)
    assert reading.facts.session == "s2"


def test_totals_are_of_the_conversation_and_what_was_before_is_taken_off() -> None:
    before = PriorConversation(totals={"cost_usd": 2.0, "input_tokens": 100})
    spent = {"type": "spent", "input_tokens": 1, "output_tokens": 7, "turns": 1}
    reading = read("agentq", [spent, facts(totals={"cost_usd": 2.5, "input_tokens": 150})], before=before)

    assert reading.of(SpendingEvent)[-1] == SpendingEvent(cost_usd=0.5, input_tokens=50, output_tokens=7, turns=1)


def test_what_is_left_out_of_facts_stays_as_it_was() -> None:
    reading = read("agentq", [facts(session="s1", denials=["sh"], text="a"), facts(model="m")])

    assert (reading.facts.session, reading.facts.denials, reading.facts.text) == ("s1", ["sh"], "a")


def test_work_after_a_result_takes_it_back() -> None:
    assert not read("agentq", [RESULT, {"type": "text", "text": "And"}]).facts.concluded
    assert read("agentq", [RESULT, {"type": "spent", "input_tokens": 1}]).facts.concluded


def test_a_wish_to_be_woken_and_denials_are_facts() -> None:
    sleep = {"type": "sleep", "for_ms": 5000, "prompt": "go on"}
    reading = read("agentq", [{"type": "denied", "tool": "sh"}, sleep, RESULT])

    assert reading.facts.denials == ["sh"]
    assert reading.judged(0).kind is Kind.SLEEPS


def test_tokens_without_a_cost_are_priced() -> None:
    before = PriorConversation(prices={"m": {"input": 1.0, "output": 1.0}}, model="m")
    reading = read("agentq", [{"type": "spent", "input_tokens": 10, "output_tokens": 2}], before=before)

    assert reading.of(SpendingEvent)[0].cost_usd == pytest.approx(12e-6)


@pytest.mark.parametrize(
    "line",
    [
        {"type": "news", "a": 1},
        {"type": "turn", "number": "many"},
        {"type": "text"},
        facts(kind="splendid"),
        facts(denials="sh"),
        facts(totals={"a": -1}),
        facts(reset_at_ms="soon"),
    ],
)
def test_what_is_not_of_the_language_passes_through_and_changes_nothing(line: dict[str, Any]) -> None:
    reading = read("agentq", [line])

    assert reading.of(UnknownEvent)[0].raw == line
    assert reading.facts.kind is None


def test_texts_are_cut_and_lines_of_no_json_are_passed_over() -> None:
    reading = read("agentq", ["hello", {"type": "text", "text": "x" * 100_000}, {"type": "began", "model": "a\nb"}])

    assert len(reading.of(TextEvent)[0].text) < 5_000
    assert reading.facts.model == "a b"


def test_the_agent_of_the_readme_is_a_whole_one(tmp_path: Path) -> None:
    page = (ROOT / "worker/agentq/worker/agents/README.md").read_text(encoding="utf-8")
    page = page.partition("## Your own agent")[2].partition("\n## ")[0]
    (program,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", program], input="count these words", capture_output=True, text=True, check=True
    )
    reading = read("agentq", done.stdout.splitlines())

    assert "other" not in reading.types
    assert reading.facts.text == "Your prompt has 3 words."
    assert reading.judged(done.returncode).kind is Kind.OK

    (profile,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "agentq.toml").write_text(profile)
    settings = {"HOME": str(tmp_path), "AGENTQ_CONFIG": str(tmp_path / "agentq.toml")}
    mine = ProfileRegistry.load(settings, tmp_path).get("mine")
    assert (mine.command, mine.format) == (str(tmp_path / "my-agent"), "agentq")
