"""What an agent does, in lines for people: cut to the width of a terminal, whole in a pipe.

Whatever an agent says may hold anything; no control byte of it reaches a terminal (see `render`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from shutil import get_terminal_size

from pydantic import JsonValue

from agentq.cli.render import bold, clean, clean_lines, dim, on_terminal, paint
from agentq.cli.spending import spent_words
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
from agentq.coordinator.moments import iso, spelled
from agentq.coordinator.story import Told

THOUGHT_LINES = 6
"""Of a thought, on a terminal."""
OTHER_CHARACTERS = 400
"""Of what this version does not know; `--json` has all of it."""
_TEXTS = ("message", "text", "description", "summary", "title", "command", "status", "error", "name")
"""Where an event that this version does not know may carry a text, the likeliest first."""
NARROW = 20
"""No text is folded narrower than this."""
BOXES = {"todo": ("☐", ""), "doing": ("▸", "running"), "done": ("☑", "ok")}
_MARGIN = re.compile(r"\s*(?:[-*•]\s+|\d{1,3}[.)]\s+)?")

Part = tuple[str, str]
"""A text, and what it looks like: `dim`, `bold`, or a word of `render.COLOURS`."""


def shown_width(margin: int = 0) -> int | None:
    """The width of the terminal beside a margin; None in a pipe, where nothing is cut."""
    return max(NARROW, get_terminal_size().columns - margin) if on_terminal() else None


class Teller:
    """Tells the doings of one run, in order."""

    def __init__(self, width: Callable[[], int | None] = shown_width) -> None:
        self._width = width
        self._attempt = 1
        self._forget()

    def _forget(self) -> None:
        self._began: tuple[str | None, str | None] = (None, None)
        self._said = ""
        self._plan = Planned(items=[])
        self._tools: dict[str, str] = {}
        self._denied = ""
        self._last = ""
        self._spent: Spent | None = None
        self._spent_told: Spent | None = None

    def tell(self, told: Told) -> Iterator[str]:
        """The lines of one doing."""
        if told.entry.attempt != self._attempt:
            yield from self.rest()
            self._forget()
            self._attempt = told.entry.attempt
            yield self._row((f"── attempt {self._attempt} ──", "dim"))
        yield from self._lines(told.doing, told.entry.at_ms)

    def rest(self) -> Iterator[str]:
        """What is left to say when no more comes: what was spent, if that was not said yet."""
        if self._spent is not None and self._spent != self._spent_told:
            self._spent_told = self._spent
            words = spent_words(self._spent)
            if words:
                yield self._row((words, "dim"))

    def _lines(self, doing: AnyDoing, at_ms: int) -> Iterator[str]:
        match doing:
            case Began():
                yield from self._beginning(doing)
            case Turned():
                return
            case Said():
                self._said = doing.text.strip()
                yield from self._text("●", doing.text)
            case Thought():
                yield from self._text("✻", doing.text, "dim", THOUGHT_LINES)
            case Called():
                yield self._call(doing)
            case Returned():
                yield self._return(doing)
            case Changed():
                yield self._row(("✎ ", "warn"), (doing.path, ""), (_after(doing.how, doing.how != "changed"), "dim"))
            case Planned():
                yield from self._planned(doing)
            case Spent():
                self._spent = doing
            case Held() | Limited() | Sleeps():
                yield self._waits(doing, at_ms)
            case Denied():
                self._denied, why = doing.why.strip(), f": {doing.why}" if doing.why else ""
                yield self._row((f"⊘ {doing.tool} was not allowed{why}", "warn"))
            case Concluded():
                yield from self._end(doing)
            case Other():
                yield self._row((f"· {_cut(_in_words(doing.raw), OTHER_CHARACTERS)}", "dim"))

    # ---- one for each kind that takes more than a line

    def _beginning(self, doing: Began) -> Iterator[str]:
        # A process may say several times that it is up.
        began = (doing.session or self._began[0], doing.model or self._began[1])
        if began == self._began and began != (None, None):
            return
        self._began = began
        words = filter(None, ("began", doing.model, doing.session and f"session {doing.session}"))
        yield self._row(("▶ " + " · ".join(words), "dim"))

    def _call(self, doing: Called) -> str:
        self._tools[doing.id] = self._last = doing.tool
        return self._row(("⚙ ", "running"), (doing.tool, "bold"), (_after(doing.about or _plain(doing.input)), ""))

    def _return(self, doing: Returned) -> str:
        tool = doing.tool or self._tools.get(doing.id, "")
        # Where several tools are used at once, their ends come in any order.
        which = "" if tool in ("", self._last) else f"{tool}: "
        # A tool that was not allowed ends with the words that said so.
        text = "" if self._denied and doing.text.strip() == self._denied else doing.text
        lines = [line for line in clean_lines(text).split("\n") if line.strip()]
        first = lines[0].strip() if lines else ""
        more = f" (+{len(lines) - 1} lines)" if len(lines) > 1 else ""
        if doing.ok:
            return self._row((f"  ↳ {which}", "dim"), ("ok", "ok"), (_after(first + more), "dim"))
        return self._row((f"  ↳ {which}", "dim"), (f"failed{': ' if first else ''}{first}{more}", "fail"))

    def _planned(self, doing: Planned) -> Iterator[str]:
        if doing.items == self._plan.items:
            return
        self._plan = doing
        yield self._row(("plan", "dim"))
        for text, state in doing.items:
            box, like = BOXES[state]
            yield self._row((f"  {box} ", like), (text, "dim" if state == "done" else ""))

    def _waits(self, doing: Held | Limited | Sleeps, at_ms: int) -> str:
        match doing:
            case Held():
                told = _until(doing.for_ms and at_ms + doing.for_ms, at_ms)
                return self._row((f"◷ waits{told}{': ' if doing.why else ''}{doing.why}", "warn"))
            case Limited():
                where = "the account is at its limit" if doing.reached else "the account is near its limit"
                what = f" ({doing.what})" if doing.what else ""
                return self._row(
                    (f"◷ {where}{what}{_until(doing.until_ms, at_ms)}", "fail" if doing.reached else "warn")
                )
            case Sleeps():
                told = _until(at_ms + doing.for_ms, at_ms)
                return self._row((f"☾ wants to sleep{told}{': ' if doing.why else ''}{doing.why}", "warn"))

    def _end(self, doing: Concluded) -> Iterator[str]:
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
        room = None if width is None else max(NARROW, width - 2)
        lines = [row for line in clean_lines(text).strip("\n").split("\n") for row in _folded(line.expandtabs(4), room)]
        if width is not None and most is not None and len(lines) > most:
            lines = [*lines[:most], f"… ({len(lines) - most} lines more)"]
        for place, line in enumerate(lines):
            yield _styled(f"{' ' if place else sign} {line}".rstrip(), like)

    def _row(self, *parts: Part) -> str:
        """One line, cut where the terminal ends."""
        left, row = self._width(), ""
        for text, like in parts:
            whole = clean(text)
            fitting = whole if left is None else _cut(whole, left)
            row += _styled(fitting, like)
            if left is not None:
                left -= _cells(fitting)
            if fitting != whole:
                break
        return row


def _in_words(raw: JsonValue) -> str:
    """An event that this version does not know: its kind and the text that it carries."""
    if not isinstance(raw, dict):
        return raw if isinstance(raw, str) else json.dumps(raw, ensure_ascii=False)
    kinds = [raw.get(name) for name in ("type", "subtype")]
    kind = next((each for each in reversed(kinds) if isinstance(each, str) and each), "event").replace("_", " ")
    text = next((each for name in _TEXTS if isinstance(each := raw.get(name), str) and each.strip()), "")
    return ": ".join(filter(None, (kind, " ".join(text.split()))))


def _plain(given: JsonValue) -> str:
    """What a tool was given, without lists and the like, which nobody reads in one line."""
    if isinstance(given, dict):
        given = {name: value for name, value in given.items() if not isinstance(value, list | dict)}
    return "" if given in (None, "", {}) or isinstance(given, list) else json.dumps(given, ensure_ascii=False)


def _after(text: str, told: bool = True) -> str:
    """Something more on the same line."""
    return f"  {text}" if text and told else ""


def _until(until_ms: int | None, at_ms: int) -> str:
    return "" if until_ms is None else f" for {spelled(until_ms - at_ms)}, until {iso(until_ms)}"


def _styled(text: str, like: str) -> str:
    if not text or not like:
        return text
    return {"dim": dim, "bold": bold}.get(like, lambda word: paint(word, like=like))(text)


def _cut(text: str, width: int) -> str:
    """As much of a line as there is room for."""
    if _cells(text) <= width:
        return text
    from rich.cells import set_cell_size

    return set_cell_size(text, width - 1).rstrip() + "…" if width > 0 else ""


def _folded(line: str, width: int | None) -> Iterator[str]:
    """A line of a text in as many as it takes; each begins where the words of the first do."""
    if width is None or _cells(line) <= width:
        yield line
        return
    from rich.cells import chop_cells

    indent = " " * min(len(line) - len(_MARGIN.sub("", line, count=1)), width // 2)
    row = ""
    for word in re.findall(r"\s*\S+", line):
        if row and _cells(row + word) > width >= _cells(indent + word.lstrip()):
            yield row
            row = indent + word.lstrip()
        else:
            row += word
        if _cells(row) > width:
            *full, row = chop_cells(row, width)
            yield from full
    yield row


def _cells(text: str) -> int:
    """How many columns a text takes; some characters take two."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)
