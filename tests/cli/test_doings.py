"""What an agent does, in lines: each kind of doing, on a terminal and in a pipe."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from rich.cells import cell_len

from agentq.cli.doings import Teller
from agentq.cli.render import clean
from agentq.cli.spending import amount, dollars, spent_words
from agentq.coordinator.doings import (
    AnyDoing,
    Began,
    Called,
    Changed,
    Concluded,
    Denied,
    Held,
    Limited,
    Other,
    Planned,
    Returned,
    Said,
    Sleeps,
    Spent,
    Thought,
    Turned,
)
from agentq.coordinator.logs import LogEntry
from agentq.coordinator.run import Spending
from agentq.coordinator.story import Told

AT_MS = 1_900_000_000_000


def lines(*doings: AnyDoing, width: int | None = None, attempts: Iterable[int] = ()) -> list[str]:
    """What a person reads of these."""
    teller = Teller(lambda: width)
    found: list[str] = []
    numbers = iter(attempts)
    for doing in doings:
        entry = LogEntry(id=f"{AT_MS}-0", attempt=next(numbers, 1), stream="event", text="", at=0)
        found += teller.tell(Told(entry, doing))
    return found + list(teller.rest())


@pytest.mark.parametrize(
    ("doing", "line"),
    [
        (Began(session="s-1", model="opus"), "▶ began · opus · session s-1"),
        (Began(), "▶ began"),
        (Said(text="hello"), "● hello"),
        (Thought(text="hm"), "✻ hm"),
        (Called(tool="Bash", about="make test"), "⚙ Bash  make test"),
        (Called(tool="Ask", input={"q": "ü"}), '⚙ Ask  {"q": "ü"}'),
        (Called(tool="List", input={}), "⚙ List"),
        (Called(tool="Todo", input={"items": [{"a": 1}], "more": {}, "n": 2}), '⚙ Todo  {"n": 2}'),
        (Called(tool="Todo", input=[1]), "⚙ Todo"),
        (Returned(text="3 passed\n\nin 2 s\n"), "  ↳ ok  3 passed (+1 lines)"),
        (Returned(), "  ↳ ok"),
        (Returned(ok=False, text="\n  boom"), "  ↳ failed: boom"),
        (Returned(ok=False), "  ↳ failed"),
        (Changed(path="src/parser.py"), "✎ src/parser.py"),
        (Changed(path="a", how="deleted"), "✎ a  deleted"),
        (Held(why="overloaded", for_ms=31_000), "◷ waits for 31 s, until 2030-03-17T17:47:11.000Z: overloaded"),
        (Held(why="throttled"), "◷ waits: throttled"),
        (
            Limited(reached=True, until_ms=AT_MS + 3_600_000, what="five_hour"),
            "◷ the account is at its limit (five_hour) for 1 h, until 2030-03-17T18:46:40.000Z",
        ),
        (Limited(reached=True), "◷ the account is at its limit"),
        (Limited(reached=False, what="91 %"), "◷ the account is near its limit (91 %)"),
        (Denied(tool="WebFetch"), "⊘ WebFetch was not allowed"),
        (Denied(tool="Bash", why="rm"), "⊘ Bash was not allowed: rm"),
        (Sleeps(for_ms=60_000, why="CI"), "☾ wants to sleep for 1 m, until 2030-03-17T17:47:40.000Z: CI"),
        (Concluded(ok=True), "✓ done"),
        (Concluded(ok=False), "✗ ended without success"),
        (Concluded(ok=False, text="API error"), "✗ API error"),
        (Other(raw={"type": "new", "n": 1}), "· new"),
        (
            Other(raw={"type": "system", "subtype": "task_started", "description": "Run\nit", "uuid": "7"}),
            "· task started: Run it",
        ),
        (
            Other(raw={"type": "error", "id": "item_0", "message": "Model metadata for `m` not found."}),
            "· error: Model metadata for `m` not found.",
        ),
        (Other(raw={"type": 7}), "· event"),
        (Other(raw=[1, 2]), "· [1, 2]"),
        (Other(raw="plain words"), "· plain words"),
    ],
)
def test_each_doing_is_a_line(doing: AnyDoing, line: str) -> None:
    assert lines(doing) == [line]


def test_a_turn_is_not_told_by_itself() -> None:
    assert lines(Turned(number=1)) == []


def test_a_text_keeps_its_lines_behind_one_sign() -> None:
    assert lines(Said(text="one\n\n  two\n")) == ["● one", "", "    two"]


def test_a_plan_is_a_check_list_that_is_told_when_it_changes() -> None:
    plan = Planned(items=[("read", "done"), ("mend", "doing"), ("test", "todo")])

    assert lines(plan, plan) == ["plan", "  ☑ read", "  ▸ mend", "  ☐ test"]


def test_the_last_words_are_not_said_twice() -> None:
    assert lines(Said(text="all green\n"), Concluded(ok=True, text="all green")) == ["● all green", "✓ done"]
    assert lines(Said(text="a"), Concluded(ok=True, text="b")) == ["● a", "● b", "✓ done"]


def test_an_agent_that_says_twice_that_it_is_up_is_told_once() -> None:
    up = Began(session="s", model="m")

    assert lines(up, Began(session="s"), up, Began(session="t", model="m")) == [
        "▶ began · m · session s",
        "▶ began · m · session t",
    ]


def test_the_end_of_another_tool_than_the_last_says_which() -> None:
    called = [Called(id="1", tool="Bash"), Called(id="2", tool="Read")]

    assert lines(*called, Returned(id="1"), Returned(id="2"))[2:] == ["  ↳ Bash: ok", "  ↳ ok"]


def test_a_tool_that_was_not_allowed_is_not_explained_twice() -> None:
    why = "you have not granted it"

    assert lines(Called(id="1", tool="Fetch"), Denied(tool="Fetch", why=why), Returned(id="1", ok=False, text=why)) == [
        "⚙ Fetch",
        f"⊘ Fetch was not allowed: {why}",
        "  ↳ failed",
    ]


def test_what_was_spent_is_told_once_at_the_end_of_each_attempt() -> None:
    spent = [Spent(cost_usd=0.1, turns=n, input_tokens=n * 1000) for n in (1, 2, 3)]

    assert lines(spent[0], spent[1], Concluded(ok=True), spent[1]) == ["✓ done", "$0.10 · 2 turns · 2k tokens"]
    assert lines(spent[0], Concluded(ok=True), spent[2])[1:] == [
        "$0.10 · 1 turn · 1k tokens",
        "$0.10 · 3 turns · 3k tokens",
    ]
    assert lines(spent[0], Said(text="a"), spent[1], attempts=(1, 2, 2)) == [
        "$0.10 · 1 turn · 1k tokens",
        "── attempt 2 ──",
        "● a",
        "$0.10 · 2 turns · 2k tokens",
    ]


def test_long_things_are_cut_and_texts_folded_at_the_width() -> None:
    told = lines(
        Called(tool="Bash", about="x" * 500),
        Said(text="- " + "word " * 30 + "\n- " + "漢" * 60),
        Thought(text="line\n" * 30),
        Other(raw="y" * 500),
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
    said: list[AnyDoing] = [
        Said(text=text), Thought(text=text), Called(tool=text, about=text), Returned(text=text), Changed(path=text),
        Planned(items=[(text, "todo")]), Held(why=text), Denied(tool=text, why=text), Concluded(ok=False, text=text),
        Limited(reached=True, what=text), Began(session=text), Other(raw=text),
    ]  # fmt: skip

    told = "".join(lines(*said, width=width))

    assert clean(told) == told


@pytest.mark.parametrize(
    ("spent", "words"),
    [
        (Spending(), ""),
        (Spent(cost_usd=0.12, turns=3, input_tokens=11_500, output_tokens=800), "$0.12 · 3 turns · 12k tokens"),
        (Spending(turns=1, output_tokens=1), "cost unknown · 1 turn · 1 token"),
        (Spending(cost_usd=2.5), "$2.50"),
    ],
)
def test_spending_in_words(spent: Spent | Spending, words: str) -> None:
    assert spent_words(spent) == words


def test_amounts_stay_short() -> None:
    assert [amount(n) for n in (0, 999, 1000, 1234, 9949, 9950, 12_345, 999_499, 999_500, 12_345_678)] == [
        "0", "999", "1k", "1.2k", "9.9k", "10k", "12k", "999k", "1M", "12M",
    ]  # fmt: skip
    assert [dollars(n) for n in (0, 0.00001, 0.005, 0.1, 0.1234, 1, 1234.5)] == [
        "$0.00", "under $0.0001", "$0.005", "$0.10", "$0.1234", "$1.00", "$1,234.50",
    ]  # fmt: skip
