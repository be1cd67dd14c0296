"""Codex's language: each of its traps."""

from __future__ import annotations

from typing import Any

import pytest
from support.agent_output import NOW_MS, captured, read

from agentq.coordinator.model.agent_events import (
    AccountLimitEvent,
    FileChangeEvent,
    StartedEvent,
    TextEvent,
    ThoughtEvent,
    ThrottledEvent,
    TodoListEvent,
    ToolCallEvent,
    ToolDeniedEvent,
    ToolResultEvent,
)
from agentq.worker.agents.formats.registry import create_reader
from agentq.worker.agents.reader import PriorConversation
from agentq.worker.agents.verdicts import VerdictKind as Kind

BEGUN: list[dict[str, Any]] = [{"type": "thread.started", "thread_id": "th1"}, {"type": "turn.started"}]
DONE = {"type": "turn.completed", "usage": {"input_tokens": 4000, "cached_input_tokens": 1000, "output_tokens": 500}}


def item(stage: str = "completed", **told: Any) -> dict[str, Any]:
    return {"type": f"item.{stage}", "item": told}


def failed(message: str) -> list[dict[str, Any]]:
    return [{"type": "error", "message": message}, {"type": "turn.failed", "error": {"message": message}}]


def test_a_real_turn_with_a_command_is_told() -> None:
    reading = captured("codex-shell")

    assert reading.types == ["began", "other", "turn", "tool", "tool_end", "text", "spent", "result"]
    assert reading.of(ToolCallEvent)[0].tool == "shell"
    assert reading.of(ToolResultEvent)[0] == ToolResultEvent(id="item_1", tool="shell", ok=False, text="hello\n")
    assert reading.facts.text == reading.of(TextEvent)[-1].text
    assert reading.judged(0).kind is Kind.OK


def test_tokens_are_those_of_the_thread_less_what_they_were() -> None:
    first = captured("codex-tool")
    second = captured("codex-resumed", PriorConversation(totals=first.facts.totals))

    assert (first.facts.spent.input_tokens, first.facts.spent.output_tokens) == (2000, 200)
    assert (second.facts.spent.input_tokens, second.facts.spent.output_tokens) == (1000, 100)


def test_it_tells_no_cost_so_the_price_of_the_model_that_was_asked_for_counts() -> None:
    prices = {"gpt-5": {"input": 2.0, "cached": 0.5, "output": 10.0}}
    told = read("codex", [*BEGUN, DONE], before=PriorConversation(prices=prices, model="gpt-5.2-codex"))
    unknown = read("codex", [*BEGUN, DONE], before=PriorConversation(prices=prices, model="o9"))

    assert told.facts.spent.cost_usd == pytest.approx((3000 * 2 + 1000 * 0.5 + 500 * 10) / 1e6)
    assert unknown.facts.spent.cost_usd is None


def test_a_limit_is_prose_with_a_time_of_the_day_where_it_runs() -> None:
    words = "You’ve hit your usage limit. Upgrade to Pro (https://example.com), or try again at 2:30 AM."
    reading = read("codex", [*BEGUN, *failed(words)])

    assert reading.of(AccountLimitEvent)[0].reached
    verdict = reading.judged(1, zone="Europe/Berlin")
    assert verdict.kind is Kind.LIMITED
    assert verdict.reset_at_ms == 1_795_051_800_000 + 60_000, "half past one in UTC, and the minute in which it ends"
    assert reading.judged(1, zone="UTC").reset_at_ms == 1_795_055_400_000 + 60_000


def test_a_real_limit_is_one() -> None:
    verdict = captured("codex-quota").judged(1)

    assert verdict.kind is Kind.LIMITED
    assert verdict.reset_at_ms is not None
    assert NOW_MS < verdict.reset_at_ms < NOW_MS + 2 * 3_600_000


def test_an_answer_about_limits_is_an_answer() -> None:
    words = "You've hit your usage limit. Try again at 2:30 AM."
    reading = read("codex", [*BEGUN, item(id="i", type="agent_message", text=words), DONE])

    assert reading.judged(0).kind is Kind.OK
    assert reading.of(AccountLimitEvent) == []


@pytest.mark.parametrize(
    ("name", "code", "kind"),
    [
        ("codex-400", 1, Kind.INPUT),
        ("codex-401", 1, Kind.AUTH),
        ("codex-429", 1, Kind.THROTTLED),
        ("codex-529", 1, Kind.THROTTLED),
        ("codex-bad-flag", 2, Kind.INPUT),
        ("codex-context", 1, Kind.CONTEXT),
        ("codex-credit", 1, Kind.CREDIT),
        ("codex-cut", 1, Kind.AGENT_ERROR),
        ("codex-empty", 1, Kind.INPUT),
        ("codex-length", 1, Kind.AGENT_ERROR),
        ("codex-no-session", 1, Kind.NO_SESSION),
        ("codex-sigterm", -15, Kind.KILLED),
        ("codex-text", 0, Kind.OK),
        ("codex-untrusted", 1, Kind.INPUT),
    ],
)
def test_real_ends_are_called_by_their_names(name: str, code: int, kind: Kind) -> None:
    assert captured(name).judged(code).kind is kind


def test_connecting_again_is_no_failure() -> None:
    again = {"type": "error", "message": "Reconnecting... 1/5 (unexpected status 503)"}
    reading = read("codex", [*BEGUN, again, item(id="i", type="agent_message", text="Hi"), DONE])

    assert reading.of(ThrottledEvent)[0].why.startswith("Reconnecting")
    assert reading.judged(0).kind is Kind.OK


def test_a_turn_that_begins_again_is_not_ended() -> None:
    assert not read("codex", [*BEGUN, DONE, {"type": "turn.started"}]).facts.concluded


def test_changes_of_files_are_told_by_what_was_done_to_them() -> None:
    changes = [{"path": "a", "kind": "add"}, {"path": "b", "kind": "update"}, {"path": "c", "kind": "delete"}]
    lines = [*BEGUN, item(id="i", type="file_change", changes=changes, status="completed")]
    refused = [*BEGUN, item(id="i", type="file_change", changes=changes, status="failed")]

    told = [(changed.path, changed.how) for changed in read("codex", lines).of(FileChangeEvent)]
    assert told == [("a", "added"), ("b", "changed"), ("c", "deleted")]
    assert read("codex", refused).of(FileChangeEvent) == []


def test_a_command_that_was_declined_is_a_denial() -> None:
    run = {"id": "i", "type": "command_execution", "command": "rm -r x"}
    reading = read("codex", [*BEGUN, item("started", **run), item(**run, status="declined", exit_code=-1), DONE])

    assert [denied.tool for denied in reading.of(ToolDeniedEvent)] == ["shell"]
    assert [returned.ok for returned in reading.of(ToolResultEvent)] == [False]
    assert reading.judged(0).kind is Kind.OK_WITH_DENIALS


def test_a_command_that_failed_is_told_with_its_output() -> None:
    run: dict[str, Any] = {
        "id": "i",
        "type": "command_execution",
        "command": "false",
        "status": "failed",
        "exit_code": 1,
    }
    reading = read("codex", [*BEGUN, item(**run, aggregated_output="no")])

    assert reading.of(ToolCallEvent)[0].about == "false"
    assert reading.of(ToolResultEvent) == [ToolResultEvent(id="i", tool="shell", ok=False, text="no")]


def test_thoughts_plans_and_other_tools_are_told() -> None:
    reading = read(
        "codex",
        [
            *BEGUN,
            item(id="r", type="reasoning", text="hm"),
            item("updated", id="p", type="todo_list", items=[{"text": "a", "completed": True}, {"text": "b"}]),
            item(id="m", type="mcp_tool_call", server="s", tool="t", arguments={"q": 1}, status="completed"),
            item(id="w", type="web_search", query="cats"),
        ],
    )

    assert reading.of(ThoughtEvent)[0].text == "hm"
    assert reading.of(TodoListEvent)[0].items == [("a", "done"), ("b", "todo")]
    assert [(called.tool, called.about) for called in reading.of(ToolCallEvent)] == [
        ("s.t", ""),
        ("web_search", "cats"),
    ]


def test_the_thread_is_its_session() -> None:
    reading = read("codex", BEGUN, before=PriorConversation(model="gpt-5"))

    assert reading.of(StartedEvent) == [StartedEvent(session="th1", model="gpt-5")]
    assert reading.facts.session == "th1"


def test_a_warning_is_not_the_reason_of_its_end() -> None:
    assert captured("codex-sigint").judged(1).error == "it says that it failed (exit code 1)"


def test_what_tools_write_to_stderr_later_is_not_its_own_error() -> None:
    reader = create_reader("codex", PriorConversation())
    list(reader.read('{"type":"thread.started","thread_id":"th1"}'))
    reader.read_error("Error: no rollout found for thread id 1")
    reader.finish()

    assert reader.facts.kind is None
