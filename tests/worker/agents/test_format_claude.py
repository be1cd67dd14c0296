"""Claude Code's language, and its relatives': each of its traps."""

from __future__ import annotations

from typing import Any

import pytest
from support.agent_output import NOW_MS, captured, read

from agentq.coordinator.model.agent_events import (
    AccountLimitEvent,
    FileChangeEvent,
    ModelTurnEvent,
    ResultEvent,
    SleepRequestEvent,
    SpendingEvent,
    TextEvent,
    ThrottledEvent,
    TodoListEvent,
    ToolCallEvent,
    ToolDeniedEvent,
    ToolResultEvent,
)
from agentq.worker.agents.reader import PriorConversation
from agentq.worker.agents.verdicts import VerdictKind as Kind

INIT = {
    "type": "system",
    "subtype": "init",
    "session_id": "s1",
    "model": "claude-opus-5-5",
    "permissionMode": "dontAsk",
}
GOOD = {"type": "result", "subtype": "success", "is_error": False, "result": "Done.", "session_id": "s1"}


def assistant(*parts: dict[str, Any], id_: str = "m1", **more: Any) -> dict[str, Any]:
    usage = {"input_tokens": 10, "cache_read_input_tokens": 90, "output_tokens": 5}
    return {"type": "assistant", "message": {"id": id_, "content": list(parts), "usage": usage}, **more}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def tool(name: str, id_: str = "t1", **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id_, "name": name, "input": given}


def returned(id_: str = "t1", content: Any = "ok", is_error: bool = False) -> dict[str, Any]:
    part = {"type": "tool_result", "tool_use_id": id_, "content": content, "is_error": is_error}
    return {"type": "user", "message": {"content": [part]}}


def failed(error: str = "", **more: Any) -> dict[str, Any]:
    return {"type": "result", "subtype": "success", "is_error": True, "result": error, **more}


def test_a_real_turn_with_a_tool_is_told_from_its_beginning_to_its_end() -> None:
    reading = captured("claude-tool")

    assert reading.types == [
        *("began", "turn", "spent", "tool", "tool_end", "file", "turn", "spent", "text", "spent", "result")
    ]
    assert reading.of(FileChangeEvent)[0].path == "made.txt"
    assert reading.facts.session == "0c1f7e5a-8a52-4b5e-9c1e-2f6d3b7a9e10"
    assert reading.facts.spent == SpendingEvent(cost_usd=0.012, input_tokens=2000, output_tokens=200, turns=2)
    assert reading.facts.text == "I wrote made.txt."
    assert reading.judged(0).kind is Kind.OK


def test_a_success_that_is_marked_as_an_error_is_none() -> None:
    reading = captured("claude-429")

    assert reading.facts.concluded
    assert reading.facts.ok is False
    assert reading.judged(1).kind is Kind.THROTTLED
    assert reading.facts.text == ""


def test_what_is_billed_is_what_the_conversation_has_cost_more_than_before() -> None:
    first = captured("claude-tool")
    second = captured("claude-resumed", PriorConversation(totals=first.facts.totals))

    assert second.facts.spent.cost_usd == pytest.approx(0.006)
    assert (second.facts.spent.input_tokens, second.facts.spent.output_tokens) == (1000, 100)
    assert second.facts.totals["cost_usd"] == pytest.approx(0.018)


def test_a_fork_is_billed_for_what_it_cost_more_than_its_parent() -> None:
    parent = captured("claude-resumed", PriorConversation(totals=captured("claude-tool").facts.totals))
    fork = captured("claude-forked", PriorConversation(totals=parent.facts.totals))

    assert fork.facts.spent.cost_usd == pytest.approx(0.006)


def test_a_total_that_is_smaller_than_before_has_begun_anew() -> None:
    reading = read(
        "claude", [INIT, {**GOOD, "total_cost_usd": 0.5}], before=PriorConversation(totals={"cost_usd": 2.0})
    )

    assert reading.facts.spent.cost_usd == 0.5
    assert reading.facts.totals == {"cost_usd": 0.5}


def test_a_result_is_not_the_end() -> None:
    reading = read("claude", [INIT, GOOD, INIT, assistant(text("And more"))])
    assert not reading.facts.concluded
    assert reading.facts.ok is None
    assert reading.judged(0).kind is Kind.NO_RESULT

    reading = read("claude", [INIT, GOOD, INIT, assistant(text("And more")), {**GOOD, "result": "All done."}])
    assert reading.facts.text == "All done."
    assert reading.judged(0).kind is Kind.OK


def test_what_follows_a_result_and_is_not_the_agents_work_leaves_it_the_end() -> None:
    after = {"type": "system", "subtype": "session_state_changed", "state": "idle"}

    assert read("claude", [INIT, GOOD, after]).facts.concluded


def test_a_wish_to_be_woken_is_kept_with_its_prompt() -> None:
    reading = captured("claude-wakeup")

    (sleep,) = reading.of(SleepRequestEvent)
    assert sleep == SleepRequestEvent(
        for_ms=60_000, prompt="Go on: SCN:text It is done.", why="the build needs a while"
    )
    assert reading.facts.sleep == sleep
    assert reading.judged(-9, why="sleep").kind is Kind.SLEEPS
    assert reading.judged(0).kind is Kind.SLEEPS


def test_a_wish_that_was_refused_or_that_came_true_is_no_more() -> None:
    asks = [INIT, assistant(tool("ScheduleWakeup", delaySeconds=60, prompt="go on", reason="r"))]

    assert read("claude", [*asks, returned(is_error=True), GOOD]).facts.sleep is None
    assert read("claude", [*asks, returned(), GOOD, INIT, assistant(text("Awake"), id_="m2")]).facts.sleep is None
    assert read("claude", [*asks, returned(), GOOD]).facts.sleep is not None


@pytest.mark.parametrize("seconds", [None, "soon", -5, 0, float("nan"), True, [60]])
def test_a_wish_without_a_time_is_none(seconds: Any) -> None:
    reading = read("claude", [INIT, assistant(tool("ScheduleWakeup", delaySeconds=seconds)), returned(), GOOD])

    assert reading.facts.sleep is None


def test_tools_that_were_not_allowed_are_a_warning() -> None:
    reading = captured("claude-denied")

    assert [denied.tool for denied in reading.of(ToolDeniedEvent)] == ["Write"]
    assert reading.facts.denials == ["Write"]
    assert reading.of(FileChangeEvent) == []
    assert reading.judged(0).kind is Kind.OK_WITH_DENIALS


def test_denials_that_only_the_result_tells_are_told() -> None:
    reading = read("claude", [INIT, {**GOOD, "permission_denials": [{"tool_name": "Bash"}, {"tool_name": "Bash"}]}])

    assert reading.facts.denials == ["Bash", "Bash"]


def test_a_limit_of_the_account_comes_with_its_reset() -> None:
    reading = captured("claude-quota")

    assert reading.of(AccountLimitEvent) == [
        AccountLimitEvent(reached=True, until_ms=1_795_049_782_000, what="five_hour")
    ]
    verdict = reading.judged(1)
    assert verdict.kind is Kind.LIMITED
    assert verdict.reset_at_ms == 1_795_049_782_000
    assert verdict.error.startswith("You've hit your 5-hour limit")


def test_a_limit_that_is_told_only_in_the_error_has_a_reset_too() -> None:
    reading = read("claude", [INIT, failed("You've hit your session limit · resets 4am (UTC)", api_error_status=429)])

    verdict = reading.judged(1)
    assert verdict.kind is Kind.LIMITED
    assert verdict.reset_at_ms is not None
    assert NOW_MS < verdict.reset_at_ms < NOW_MS + 5 * 3_600_000


def test_a_rejected_request_that_is_paid_for_otherwise_is_no_limit() -> None:
    info = {"status": "rejected", "resetsAt": 1_795_049_782, "overageStatus": "allowed", "isUsingOverage": True}
    reading = read("claude", [INIT, {"type": "rate_limit_event", "rate_limit_info": info}, assistant(text("Hi")), GOOD])

    assert reading.of(AccountLimitEvent) == []
    assert reading.judged(0).kind is Kind.OK


def test_a_limit_that_was_met_and_passed_is_forgotten() -> None:
    info = {"status": "rejected", "resetsAt": 1_795_049_782}
    reading = read("claude", [INIT, {"type": "rate_limit_event", "rate_limit_info": info}, assistant(text("Hi")), GOOD])

    assert reading.judged(0).kind is Kind.OK
    assert reading.facts.reset_at_ms is None


def test_an_answer_about_limits_and_keys_is_an_answer() -> None:
    words = "You've hit your usage limit · resets 4pm (UTC). Invalid API key. Credit balance is too low."
    reading = read("claude", [INIT, assistant(text(words)), {**GOOD, "result": words}])

    assert reading.judged(0).kind is Kind.OK
    reading = read("claude", [INIT, assistant(text(words))])
    assert reading.judged(1).kind is Kind.AGENT_ERROR
    assert reading.judged(1).reset_at_ms is None


@pytest.mark.parametrize(
    ("name", "code", "kind"),
    [
        ("claude-400", 1, Kind.INPUT),
        ("claude-401", 1, Kind.AUTH),
        ("claude-529", 1, Kind.THROTTLED),
        ("claude-bad-flag", 1, Kind.INPUT),
        ("claude-budget", 1, Kind.BUDGET),
        ("claude-context", 1, Kind.CONTEXT),
        ("claude-credit", 1, Kind.CREDIT),
        ("claude-cut", 0, Kind.OK),
        ("claude-empty", 1, Kind.INPUT),
        ("claude-length", 0, Kind.OK),
        ("claude-max-turns", 1, Kind.MAX_TURNS),
        ("claude-no-session", 1, Kind.NO_SESSION),
        ("claude-quota-key", 1, Kind.THROTTLED),
        ("claude-sigkill", -9, Kind.KILLED),
        ("claude-sigterm", 143, Kind.KILLED),
        ("claude-text", 0, Kind.OK),
    ],
)
def test_real_ends_are_called_by_their_names(name: str, code: int, kind: Kind) -> None:
    assert captured(name).judged(code).kind is kind


def test_a_session_that_is_in_use_can_be_gone_on_with() -> None:
    """An attempt that was killed before it was read had begun it."""
    reading = captured("claude-session-in-use")

    assert reading.facts.session == "0c1f7e5a-8a52-4b5e-9c1e-2f6d3b7a9e10"
    assert reading.judged(1).kind is Kind.AGENT_ERROR
    assert "is already in use" in reading.judged(1).error


def test_an_interrupt_ends_with_0_and_is_one_all_the_same() -> None:
    assert captured("claude-sigint").judged(0).kind is Kind.INTERRUPTED
    aborted = {"type": "result", "subtype": "error_during_execution", "terminal_reason": "aborted_tools"}
    assert read("claude", [INIT, aborted]).judged(0).kind is Kind.INTERRUPTED


def test_an_end_in_plan_mode_did_nothing() -> None:
    assert captured("claude-plan").judged(0).kind is Kind.PLAN_ONLY
    enters = [INIT, assistant(tool("EnterPlanMode")), returned()]
    assert read("claude", [*enters, GOOD]).judged(0).kind is Kind.PLAN_ONLY
    leaves = [assistant(tool("ExitPlanMode", "t2", plan="1. …"), id_="m2"), returned("t2")]
    assert read("claude", [*enters, *leaves, GOOD]).judged(0).kind is Kind.OK


def test_a_refusal_of_the_model_is_no_good_end() -> None:
    reading = read("claude", [INIT, assistant(text("I cannot")), {**GOOD, "stop_reason": "refusal"}])

    assert reading.judged(0).kind is Kind.REFUSED
    assert captured("claude-refusal").judged(1).kind is Kind.REFUSED


def test_requests_that_are_tried_again_are_told_and_explain_a_silence() -> None:
    retry = {"type": "system", "subtype": "api_retry", "error_status": 401, "error": "x", "retry_delay_ms": 900}
    reading = read("claude", [INIT, retry])

    assert reading.of(ThrottledEvent) == [ThrottledEvent(why="x", for_ms=900)]
    assert reading.judged(143, why="silence").kind is Kind.AUTH
    assert reading.judged(143).kind is Kind.KILLED
    assert read("claude", [INIT, retry, assistant(text("Hi"))]).judged(143, why="silence").kind is Kind.SILENCE


def test_a_message_in_several_events_is_one_turn_and_is_counted_once() -> None:
    again = assistant(text("B"))
    again["message"]["usage"] = {"input_tokens": 10, "cache_read_input_tokens": 90, "output_tokens": 9}
    reading = read("claude", [INIT, assistant(text("A")), again, assistant(text("C"), id_="m2")])

    assert [turned.number for turned in reading.of(ModelTurnEvent)] == [1, 2]
    assert [said.text for said in reading.of(TextEvent)] == ["A", "B", "C"]
    assert reading.facts.spent == SpendingEvent(input_tokens=200, cached_tokens=180, output_tokens=14, turns=2)


def test_tokens_are_priced_until_the_bill_comes() -> None:
    before = PriorConversation(prices={"claude-opus": {"input": 10.0, "cached": 1.0, "output": 100.0}})
    reading = read("claude", [INIT, assistant(text("A"))], before=before)
    assert reading.facts.spent.cost_usd == pytest.approx((10 * 10 + 90 * 1 + 5 * 100) / 1e6)

    reading = read("claude", [INIT, assistant(text("A")), {**GOOD, "total_cost_usd": 0.25}], before=before)
    assert reading.facts.spent.cost_usd == 0.25


def test_what_a_helper_of_the_agent_says_is_not_its_answer() -> None:
    reading = read("claude", [INIT, assistant(text("Aside"), tool("Bash", command="ls"), parent_tool_use_id="t0")])

    assert reading.of(TextEvent) == []
    assert [called.about for called in reading.of(ToolCallEvent)] == ["ls"]
    assert reading.of(ModelTurnEvent) == []
    assert reading.facts.spent.input_tokens == 100, "it costs, though"


def test_a_plan_is_told_as_a_whole() -> None:
    todos = [{"content": "a", "status": "completed"}, {"content": "b", "status": "in_progress"}, {"content": "c"}]
    reading = read("claude", [INIT, assistant(tool("TodoWrite", todos=todos))])

    assert reading.of(TodoListEvent)[0].items == [("a", "done"), ("b", "doing"), ("c", "todo")]


def test_a_tool_that_failed_is_told_and_changes_no_file() -> None:
    lines = [INIT, assistant(tool("Edit", file_path="a.py")), returned(content=[text("No such file")], is_error=True)]
    reading = read("claude", lines)

    assert reading.of(ToolResultEvent) == [ToolResultEvent(id="t1", tool="Edit", ok=False, text="No such file")]
    assert reading.of(FileChangeEvent) == []


def test_structured_output_is_kept() -> None:
    assert read("claude", [INIT, {**GOOD, "structured_output": {"a": [1]}}]).facts.structured == {"a": [1]}


def test_amp_tells_no_cost_and_one_error() -> None:
    result = {"type": "result", "subtype": "error_during_execution", "is_error": True, "error": "out of credits"}
    reading = read("claude", [{"type": "system", "subtype": "init", "session_id": "T-1"}, result])

    assert reading.facts.session == "T-1"
    assert reading.facts.error == "out of credits"
    assert reading.facts.spent.cost_usd is None


def test_qwen_tells_its_error_as_an_object_and_its_tokens_by_the_run() -> None:
    result = {"type": "result", "subtype": "error_during_execution", "is_error": True, "error": {"message": "Bad."}}
    usage = {"input_tokens": 70, "output_tokens": 7}
    reading = read("claude", [{**INIT, "subtype": "session_start"}, {**result, "usage": usage}])

    assert reading.facts.error == "Bad."
    assert (reading.facts.spent.input_tokens, reading.facts.spent.output_tokens) == (70, 7)
    assert reading.judged(1).kind is Kind.AGENT_ERROR


def test_cursor_tells_its_tools_beside_its_messages() -> None:
    call = {"writeToolCall": {"args": {"path": "a.txt"}}}
    done = {"writeToolCall": {"args": {"path": "a.txt"}, "result": {"success": {"linesCreated": 1}}}}
    rejected = {"shellToolCall": {"args": {"command": "rm -r x"}, "result": {"rejected": {"reason": "no"}}}}
    reading = read(
        "claude",
        [
            INIT,
            {"type": "thinking", "subtype": "delta", "text": "hm"},
            {"type": "tool_call", "subtype": "started", "call_id": "c1", "tool_call": call},
            {"type": "tool_call", "subtype": "completed", "call_id": "c1", "tool_call": done},
            {"type": "tool_call", "subtype": "completed", "call_id": "c2", "tool_call": rejected},
            GOOD,
        ],
    )

    assert [changed.path for changed in reading.of(FileChangeEvent)] == ["a.txt"]
    assert [denied.tool for denied in reading.of(ToolDeniedEvent)] == ["Bash"]
    assert reading.judged(0).kind is Kind.OK_WITH_DENIALS


def test_cursor_fails_without_a_word_of_json() -> None:
    reading = read("claude", [INIT], ["ConnectError: [unauthenticated] Error"])

    verdict = reading.judged(1)
    assert verdict.kind is Kind.AGENT_ERROR
    assert verdict.error == "ConnectError: [unauthenticated] Error"


def test_what_it_does_not_know_passes_through() -> None:
    reading = read("claude", [{"type": "news", "a": 1}, {"type": "system", "subtype": "compact_boundary"}])

    assert reading.types == ["other", "other"]
    assert reading.facts.has_output


def test_a_result_is_told_with_its_words() -> None:
    assert read("claude", [INIT, GOOD]).of(ResultEvent) == [ResultEvent(ok=True, text="Done.")]
