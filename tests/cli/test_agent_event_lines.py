"""What an agent does, in lines: each kind of doing, on a terminal and in a pipe."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from rich.cells import cell_len

from agentq.cli.render import clean
from agentq.cli.show.agent_events import AgentEventFormatter
from agentq.cli.show.cost import format_amount, format_dollars, format_spending
from agentq.coordinator.model.agent_events import (
    AccountLimitEvent,
    AnyAgentEvent,
    FileChangeEvent,
    ModelTurnEvent,
    ResultEvent,
    SleepRequestEvent,
    SpendingEvent,
    StartedEvent,
    TextEvent,
    ThoughtEvent,
    ThrottledEvent,
    TodoListEvent,
    ToolCallEvent,
    ToolDeniedEvent,
    ToolResultEvent,
    UnknownEvent,
)
from agentq.coordinator.model.spec import AgentSpending
from agentq.coordinator.runs.agent_event_reader import LoggedAgentEvent
from agentq.coordinator.runs.logs import RunLogEntry

AT_MS = 1_900_000_000_000


def lines(*agent_events: AnyAgentEvent, width: int | None = None, attempts: Iterable[int] = ()) -> list[str]:
    """What a person reads of these."""
    teller = AgentEventFormatter(lambda: width)
    found: list[str] = []
    numbers = iter(attempts)
    for doing in agent_events:
        entry = RunLogEntry(id=f"{AT_MS}-0", attempt=next(numbers, 1), stream="event", text="", from_byte=0)
        found += teller.lines(LoggedAgentEvent(entry, doing))
    return found + list(teller.rest())


@pytest.mark.parametrize(
    ("doing", "line"),
    [
        (StartedEvent(session="s-1", model="opus"), "▶ began · opus · session s-1"),
        (StartedEvent(), "▶ began"),
        (TextEvent(text="hello"), "● hello"),
        (ThoughtEvent(text="hm"), "✻ hm"),
        (ToolCallEvent(tool="Bash", about="make test"), "⚙ Bash  make test"),
        (ToolCallEvent(tool="Ask", input={"q": "ü"}), '⚙ Ask  {"q": "ü"}'),
        (ToolCallEvent(tool="List", input={}), "⚙ List"),
        (ToolCallEvent(tool="Todo", input={"items": [{"a": 1}], "more": {}, "n": 2}), '⚙ Todo  {"n": 2}'),
        (ToolCallEvent(tool="Todo", input=[1]), "⚙ Todo"),
        (ToolResultEvent(text="3 passed\n\nin 2 s\n"), "  ↳ ok  3 passed (+1 lines)"),
        (ToolResultEvent(), "  ↳ ok"),
        (ToolResultEvent(ok=False, text="\n  boom"), "  ↳ failed: boom"),
        (ToolResultEvent(ok=False), "  ↳ failed"),
        (FileChangeEvent(path="src/parser.py"), "✎ src/parser.py"),
        (FileChangeEvent(path="a", how="deleted"), "✎ a  deleted"),
        (
            ThrottledEvent(why="overloaded", for_ms=31_000),
            "◷ waits for 31 s, until 2030-03-17T17:47:11.000Z: overloaded",
        ),
        (ThrottledEvent(why="throttled"), "◷ waits: throttled"),
        (
            AccountLimitEvent(reached=True, until_ms=AT_MS + 3_600_000, what="five_hour"),
            "◷ the account is at its limit (five_hour) for 1 h, until 2030-03-17T18:46:40.000Z",
        ),
        (AccountLimitEvent(reached=True), "◷ the account is at its limit"),
        (AccountLimitEvent(reached=False, what="91 %"), "◷ the account is near its limit (91 %)"),
        (ToolDeniedEvent(tool="WebFetch"), "⊘ WebFetch was not allowed"),
        (ToolDeniedEvent(tool="Bash", why="rm"), "⊘ Bash was not allowed: rm"),
        (SleepRequestEvent(for_ms=60_000, why="CI"), "☾ wants to sleep for 1 m, until 2030-03-17T17:47:40.000Z: CI"),
        (ResultEvent(ok=True), "✓ done"),
        (ResultEvent(ok=False), "✗ ended without success"),
        (ResultEvent(ok=False, text="API error"), "✗ API error"),
        (UnknownEvent(raw={"type": "new", "n": 1}), "· new"),
        (
            UnknownEvent(raw={"type": "system", "subtype": "task_started", "description": "Run\nit", "uuid": "7"}),
            "· task started: Run it",
        ),
        (
            UnknownEvent(raw={"type": "error", "id": "item_0", "message": "Model metadata for `m` not found."}),
            "· error: Model metadata for `m` not found.",
        ),
        (UnknownEvent(raw={"type": 7}), "· event"),
        (UnknownEvent(raw=[1, 2]), "· [1, 2]"),
        (UnknownEvent(raw="plain words"), "· plain words"),
    ],
)
def test_each_doing_is_a_line(doing: AnyAgentEvent, line: str) -> None:
    assert lines(doing) == [line]


def test_a_turn_is_not_told_by_itself() -> None:
    assert lines(ModelTurnEvent(number=1)) == []


def test_a_text_keeps_its_lines_behind_one_sign() -> None:
    assert lines(TextEvent(text="one\n\n  two\n")) == ["● one", "", "    two"]


def test_a_plan_is_a_check_list_that_is_told_when_it_changes() -> None:
    plan = TodoListEvent(items=[("read", "done"), ("mend", "doing"), ("test", "todo")])

    assert lines(plan, plan) == ["plan", "  ☑ read", "  ▸ mend", "  ☐ test"]


def test_the_last_words_are_not_said_twice() -> None:
    assert lines(TextEvent(text="all green\n"), ResultEvent(ok=True, text="all green")) == ["● all green", "✓ done"]
    assert lines(TextEvent(text="a"), ResultEvent(ok=True, text="b")) == ["● a", "● b", "✓ done"]


def test_an_agent_that_says_twice_that_it_is_up_is_told_once() -> None:
    up = StartedEvent(session="s", model="m")

    assert lines(up, StartedEvent(session="s"), up, StartedEvent(session="t", model="m")) == [
        "▶ began · m · session s",
        "▶ began · m · session t",
    ]


def test_the_end_of_another_tool_than_the_last_says_which() -> None:
    called = [ToolCallEvent(id="1", tool="Bash"), ToolCallEvent(id="2", tool="Read")]

    assert lines(*called, ToolResultEvent(id="1"), ToolResultEvent(id="2"))[2:] == ["  ↳ Bash: ok", "  ↳ ok"]


def test_a_tool_that_was_not_allowed_is_not_explained_twice() -> None:
    why = "you have not granted it"

    assert lines(
        ToolCallEvent(id="1", tool="Fetch"),
        ToolDeniedEvent(tool="Fetch", why=why),
        ToolResultEvent(id="1", ok=False, text=why),
    ) == [
        "⚙ Fetch",
        f"⊘ Fetch was not allowed: {why}",
        "  ↳ failed",
    ]


def test_what_was_spent_is_told_once_at_the_end_of_each_attempt() -> None:
    spent = [SpendingEvent(cost_usd=0.1, turns=n, input_tokens=n * 1000) for n in (1, 2, 3)]

    assert lines(spent[0], spent[1], ResultEvent(ok=True), spent[1]) == ["✓ done", "$0.10 · 2 turns · 2k tokens"]
    assert lines(spent[0], ResultEvent(ok=True), spent[2])[1:] == [
        "$0.10 · 1 turn · 1k tokens",
        "$0.10 · 3 turns · 3k tokens",
    ]
    assert lines(spent[0], TextEvent(text="a"), spent[1], attempts=(1, 2, 2)) == [
        "$0.10 · 1 turn · 1k tokens",
        "── attempt 2 ──",
        "● a",
        "$0.10 · 2 turns · 2k tokens",
    ]


def test_long_things_are_cut_and_texts_folded_at_the_width() -> None:
    told = lines(
        ToolCallEvent(tool="Bash", about="x" * 500),
        TextEvent(text="- " + "word " * 30 + "\n- " + "漢" * 60),
        ThoughtEvent(text="line\n" * 30),
        UnknownEvent(raw="y" * 500),
        width=40,
    )

    assert all(cell_len(line) <= 40 for line in told)
    assert told[0].endswith("…")
    assert told[1].startswith("● - word word")
    assert told[2].startswith("    word")
    assert "  … (24 lines more)" in told
    assert sum(line.count("漢") for line in told) == 60


EVERYTHING = "".join(map(chr, (*range(0x2100), *range(0xD800, 0xD810), 0xFFFF, 0x1F600, 0xE0041)))


@pytest.mark.parametrize("width", [None, 1, 2, 3, 20, 79, 100_000])
def test_nothing_that_an_agent_says_commands_a_terminal(width: int | None) -> None:
    text = EVERYTHING + "\n\x1b]0;owned\x07" + EVERYTHING[::-1]
    said: list[AnyAgentEvent] = [
        TextEvent(text=text), ThoughtEvent(text=text), ToolCallEvent(tool=text, about=text),
        ToolResultEvent(text=text), FileChangeEvent(path=text),
        TodoListEvent(items=[(text, "todo")]), ThrottledEvent(why=text), ToolDeniedEvent(tool=text, why=text),
        ResultEvent(ok=False, text=text),
        AccountLimitEvent(reached=True, what=text), StartedEvent(session=text), UnknownEvent(raw=text),
    ]  # fmt: skip

    told = "".join(lines(*said, width=width))

    assert clean(told) == told


@pytest.mark.parametrize(
    ("spent", "words"),
    [
        (AgentSpending(), ""),
        (SpendingEvent(cost_usd=0.12, turns=3, input_tokens=11_500, output_tokens=800), "$0.12 · 3 turns · 12k tokens"),
        (AgentSpending(turns=1, output_tokens=1), "cost unknown · 1 turn · 1 token"),
        (AgentSpending(cost_usd=2.5), "$2.50"),
    ],
)
def test_spending_in_words(spent: SpendingEvent | AgentSpending, words: str) -> None:
    assert format_spending(spent) == words


def test_amounts_stay_short() -> None:
    assert [format_amount(n) for n in (0, 999, 1000, 1234, 9949, 9950, 12_345, 999_499, 999_500, 12_345_678)] == [
        "0", "999", "1k", "1.2k", "9.9k", "10k", "12k", "999k", "1M", "12M",
    ]  # fmt: skip
    assert [format_dollars(n) for n in (0, 0.00001, 0.005, 0.1, 0.1234, 1, 1234.5)] == [
        "$0.00", "under $0.0001", "$0.005", "$0.10", "$0.1234", "$1.00", "$1,234.50",
    ]  # fmt: skip
