"""What an agent does, in lines for people: cut to the width of a terminal, whole in a pipe.

Output of agents is untrusted; no control byte of it reaches a terminal (see `render`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from shutil import get_terminal_size

from pydantic import JsonValue

from agentq.cli.render import bold, clean, clean_lines, dim, on_terminal, paint
from agentq.cli.show.cost import format_spending
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
from agentq.coordinator.model.durations import format_duration, format_iso
from agentq.coordinator.runs.agent_event_reader import LoggedAgentEvent

THOUGHT_LINES = 6
"""Of a thought, on a terminal."""
OTHER_CHARACTERS = 400
"""Of what this version does not know; `--json` has all of it."""
_TEXT_FIELDS = ("message", "text", "description", "summary", "title", "command", "status", "error", "name")
"""Where an event that this version does not know may carry a text, the likeliest first."""
WIDTH_MIN = 20
"""No text is folded narrower than this."""
CHECKLIST_MARKS = {"todo": ("☐", ""), "doing": ("▸", "running"), "done": ("☑", "ok")}
_LIST_MARKER = re.compile(r"\s*(?:[-*•]\s+|\d{1,3}[.)]\s+)?")

StyledText = tuple[str, str]
"""A text, and what it looks like: `dim`, `bold`, or a word of `render.COLOURS`."""


def terminal_width(margin: int = 0) -> int | None:
    """The width of the terminal beside a margin; None in a pipe, where nothing is cut."""
    return max(WIDTH_MIN, get_terminal_size().columns - margin) if on_terminal() else None


class AgentEventFormatter:
    """Prints the agent events of one run, in order."""

    def __init__(self, width: Callable[[], int | None] = terminal_width) -> None:
        self._width = width
        self._attempt = 1
        self._forget()

    def _forget(self) -> None:
        self._began: tuple[str | None, str | None] = (None, None)
        self._said = ""
        self._plan = TodoListEvent(items=[])
        self._tools: dict[str, str] = {}
        self._denied = ""
        self._last = ""
        self._spent: SpendingEvent | None = None
        self._spent_told: SpendingEvent | None = None

    def lines(self, told: LoggedAgentEvent) -> Iterator[str]:
        """The lines of one doing."""
        if told.entry.attempt != self._attempt:
            yield from self.rest()
            self._forget()
            self._attempt = told.entry.attempt
            yield self._row((f"── attempt {self._attempt} ──", "dim"))
        yield from self._lines(told.doing, told.entry.at_ms)

    def rest(self) -> Iterator[str]:
        """The last lines, after the last event: the cost, if it was not printed yet."""
        if self._spent is not None and self._spent != self._spent_told:
            self._spent_told = self._spent
            words = format_spending(self._spent)
            if words:
                yield self._row((words, "dim"))

    def _lines(self, doing: AnyAgentEvent, at_ms: int) -> Iterator[str]:
        match doing:
            case StartedEvent():
                yield from self._beginning(doing)
            case ModelTurnEvent():
                return
            case TextEvent():
                self._said = doing.text.strip()
                yield from self._text("●", doing.text)
            case ThoughtEvent():
                yield from self._text("✻", doing.text, "dim", THOUGHT_LINES)
            case ToolCallEvent():
                yield self._call(doing)
            case ToolResultEvent():
                yield self._return(doing)
            case FileChangeEvent():
                yield self._row(
                    ("✎ ", "warn"), (doing.path, ""), (_append_text(doing.how, doing.how != "changed"), "dim")
                )
            case TodoListEvent():
                yield from self._planned(doing)
            case SpendingEvent():
                self._spent = doing
            case ThrottledEvent() | AccountLimitEvent() | SleepRequestEvent():
                yield self._waits(doing, at_ms)
            case ToolDeniedEvent():
                self._denied, why = doing.why.strip(), f": {doing.why}" if doing.why else ""
                yield self._row((f"⊘ {doing.tool} was not allowed{why}", "warn"))
            case ResultEvent():
                yield from self._end(doing)
            case UnknownEvent():
                yield self._row((f"· {_cut_line(_describe_unknown_event(doing.raw), OTHER_CHARACTERS)}", "dim"))

    # ---- one for each kind that takes more than a line

    def _beginning(self, doing: StartedEvent) -> Iterator[str]:
        # A process may say several times that it is up.
        began = (doing.session or self._began[0], doing.model or self._began[1])
        if began == self._began and began != (None, None):
            return
        self._began = began
        words = filter(None, ("began", doing.model, doing.session and f"session {doing.session}"))
        yield self._row(("▶ " + " · ".join(words), "dim"))

    def _call(self, doing: ToolCallEvent) -> str:
        self._tools[doing.id] = self._last = doing.tool
        return self._row(
            ("⚙ ", "running"), (doing.tool, "bold"), (_append_text(doing.about or _tool_input_text(doing.input)), "")
        )

    def _return(self, doing: ToolResultEvent) -> str:
        tool = doing.tool or self._tools.get(doing.id, "")
        # Where several tools are used at once, their ends come in any order.
        which = "" if tool in ("", self._last) else f"{tool}: "
        # A tool that was not allowed ends with the words that said so.
        text = "" if self._denied and doing.text.strip() == self._denied else doing.text
        lines = [line for line in clean_lines(text).split("\n") if line.strip()]
        first = lines[0].strip() if lines else ""
        more = f" (+{len(lines) - 1} lines)" if len(lines) > 1 else ""
        if doing.ok:
            return self._row((f"  ↳ {which}", "dim"), ("ok", "ok"), (_append_text(first + more), "dim"))
        return self._row((f"  ↳ {which}", "dim"), (f"failed{': ' if first else ''}{first}{more}", "fail"))

    def _planned(self, doing: TodoListEvent) -> Iterator[str]:
        if doing.items == self._plan.items:
            return
        self._plan = doing
        yield self._row(("plan", "dim"))
        for text, state in doing.items:
            box, like = CHECKLIST_MARKS[state]
            yield self._row((f"  {box} ", like), (text, "dim" if state == "done" else ""))

    def _waits(self, doing: ThrottledEvent | AccountLimitEvent | SleepRequestEvent, at_ms: int) -> str:
        match doing:
            case ThrottledEvent():
                told = _until_text(doing.for_ms and at_ms + doing.for_ms, at_ms)
                return self._row((f"◷ waits{told}{': ' if doing.why else ''}{doing.why}", "warn"))
            case AccountLimitEvent():
                where = "the account is at its limit" if doing.reached else "the account is near its limit"
                what = f" ({doing.what})" if doing.what else ""
                return self._row(
                    (f"◷ {where}{what}{_until_text(doing.until_ms, at_ms)}", "fail" if doing.reached else "warn")
                )
            case SleepRequestEvent():
                told = _until_text(at_ms + doing.for_ms, at_ms)
                return self._row((f"☾ wants to sleep{told}{': ' if doing.why else ''}{doing.why}", "warn"))

    def _end(self, doing: ResultEvent) -> Iterator[str]:
        # Most agents say their last words, and then that these were the last.
        told = doing.text.strip() == self._said or not doing.text.strip()
        if doing.ok:
            yield from () if told else self._text("●", doing.text)
            yield self._row(("✓ done", "ok"))
        elif told:
            yield self._row(("✗ ended without success", "fail"))
        else:
            yield from self._text("✗", doing.text, "fail")
        yield from self.rest()

    # ---- how lines are made

    def _text(self, sign: str, text: str, like: str = "", most: int | None = None) -> Iterator[str]:
        """Words, folded, with their sign before the first line."""
        width = self._width()
        room = None if width is None else max(WIDTH_MIN, width - 2)
        lines = [
            row for line in clean_lines(text).strip("\n").split("\n") for row in _fold_line(line.expandtabs(4), room)
        ]
        if width is not None and most is not None and len(lines) > most:
            lines = [*lines[:most], f"… ({len(lines) - most} lines more)"]
        for place, line in enumerate(lines):
            yield _apply_style(f"{' ' if place else sign} {line}".rstrip(), like)

    def _row(self, *parts: StyledText) -> str:
        """One line, cut where the terminal ends."""
        left, row = self._width(), ""
        for text, like in parts:
            whole = clean(text)
            cut = whole if left is None else _cut_line(whole, left)
            row += _apply_style(cut, like)
            if left is not None:
                left -= _display_width(cut)
            if cut != whole:
                break
        return row


def _describe_unknown_event(raw: JsonValue) -> str:
    """An event that this version does not know: its kind and the text that it carries."""
    if not isinstance(raw, dict):
        return raw if isinstance(raw, str) else json.dumps(raw, ensure_ascii=False)
    kinds = [raw.get(name) for name in ("type", "subtype")]
    kind = next((each for each in reversed(kinds) if isinstance(each, str) and each), "event").replace("_", " ")
    text = next((each for name in _TEXT_FIELDS if isinstance(each := raw.get(name), str) and each.strip()), "")
    return ": ".join(filter(None, (kind, " ".join(text.split()))))


def _tool_input_text(given: JsonValue) -> str:
    """The arguments of a tool, without lists and objects, which do not fit on one line."""
    if isinstance(given, dict):
        given = {name: value for name, value in given.items() if not isinstance(value, list | dict)}
    return "" if given in (None, "", {}) or isinstance(given, list) else json.dumps(given, ensure_ascii=False)


def _append_text(text: str, told: bool = True) -> str:
    """Something more on the same line."""
    return f"  {text}" if text and told else ""


def _until_text(until_ms: int | None, at_ms: int) -> str:
    return "" if until_ms is None else f" for {format_duration(until_ms - at_ms)}, until {format_iso(until_ms)}"


def _apply_style(text: str, like: str) -> str:
    if not text or not like:
        return text
    return {"dim": dim, "bold": bold}.get(like, lambda word: paint(word, like=like))(text)


def _cut_line(text: str, width: int) -> str:
    """As much of a line as there is room for."""
    if _display_width(text) <= width:
        return text
    from rich.cells import set_cell_size

    return set_cell_size(text, width - 1).rstrip() + "…" if width > 0 else ""


def _fold_line(line: str, width: int | None) -> Iterator[str]:
    """A line of a text in as many as it takes; each begins where the words of the first do."""
    if width is None or _display_width(line) <= width:
        yield line
        return
    from rich.cells import chop_cells

    indent = " " * min(len(line) - len(_LIST_MARKER.sub("", line, count=1)), width // 2)
    row = ""
    for word in re.findall(r"\s*\S+", line):
        if row and _display_width(row + word) > width >= _display_width(indent + word.lstrip()):
            yield row
            row = indent + word.lstrip()
        else:
            row += word
        if _display_width(row) > width:
            *full, row = chop_cells(row, width)
            yield from full
    yield row


def _display_width(text: str) -> int:
    """How many columns a text takes; some characters take two."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)
