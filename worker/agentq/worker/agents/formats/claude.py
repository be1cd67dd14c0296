"""Claude Code's stream of JSON, and that of its relatives: Amp, Qwen Code and Cursor leave fields out, and add some.

What it says of itself is not to be taken at its word: a failed request is a `success` with `is_error`, a `result` is
not the end (it may wake itself and go on), its cost and its tokens by model are those of the whole conversation in some
versions and those of its process in others, and a refusal of its service is told as an answer. Errors are read from
flags, from the status of the request and, for limits, from the text of a result that is marked as an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from agentq.coordinator.doings import (
    Began,
    Called,
    Changed,
    Concluded,
    Denied,
    Doing,
    Held,
    Limited,
    Returned,
    Said,
    Sleeps,
    Spent,
    Thought,
    Turned,
    cut,
)
from agentq.worker.agents.formats.claude_cursor import tool_of
from agentq.worker.agents.formats.events import EventReader, error_text, planned, unknown
from agentq.worker.agents.formats.values import (
    Record,
    answer,
    count_of,
    list_of,
    number_of,
    one_line,
    record_of,
    records_of,
    text_of,
    text_within,
)
from agentq.worker.agents.reading import Before
from agentq.worker.agents.services import kind_of, kind_of_status
from agentq.worker.agents.verdicts import VerdictKind

_k = VerdictKind
_WRITES = ("Edit", "Write", "MultiEdit", "NotebookEdit", "edit", "write_file", "create_file", "edit_file", "replace")
_SUBTYPES = {
    "error_max_turns": _k.MAX_TURNS,
    "error_max_budget_usd": _k.BUDGET,
}
_REASONS = {
    "max_turns": _k.MAX_TURNS,
    "prompt_too_long": _k.CONTEXT,
    "aborted_tools": _k.INTERRUPTED,
    "aborted_streaming": _k.INTERRUPTED,
}
_MARKS = {
    "authentication_failed": _k.AUTH,
    "oauth_org_not_allowed": _k.AUTH,
    "billing_error": _k.CREDIT,
    "rate_limit": _k.THROTTLED,
    "overloaded": _k.THROTTLED,
    "server_error": _k.THROTTLED,
    "invalid_request": _k.INPUT,
}
"""What an answer is marked with that is no answer, but a failed request."""
_NO_SESSION = "No conversation found with session ID"
_INTERRUPTED = "[Request interrupted by user"
_IN_USE = re.compile(r"^(?:Error: )?Session ID (\S{1,100}) is already in use")
_NOT_TAKEN = re.compile(r"^(?:error: unknown option|error: option '|Error: Input must be provided)")
_DENIALS = 100
_TOKENS = ("input_tokens", "cached_tokens", "output_tokens")
_PAID = "paid_usd"
"""What a conversation has cost, added up from bills of single processes."""


class ClaudeReader(EventReader):
    """One attempt's."""

    def __init__(self, before: Before) -> None:
        super().__init__(before)
        self._message = ""
        self._turns = 0
        self._read, self._cached, self._wrote = 0, 0, 0
        self._of_message = (0, 0, 0)
        self._heard = 0
        """Tokens that its messages have told, read and written."""
        self._cost: float | None = None
        self._mark: VerdictKind | None = None
        self._refused = False
        self._planning = False

    def told(self, kind: str, event: Record) -> Iterable[Doing]:
        self.facts.told = True
        match kind:
            case "system":
                return self._system(text_of(event, "subtype"), event)
            case "assistant":
                return self._assistant(event)
            case "user":
                return self._user(event)
            case "result":
                return self._result(event)
            case "rate_limit_event":
                return self._limit(record_of(event, "rate_limit_info"))
            case "tool_call":
                return self._cursor_tool(event)
            case "thinking" | "stream_event" | "control_response" | "keep_alive" | "tool_progress":
                return []
        return [unknown(event)]

    def plain(self, line: str) -> None:
        """What it prints when it does not even begin."""
        if not self.facts.told:
            if line.startswith(_NO_SESSION):
                self.facts.kind = _k.NO_SESSION
            elif _NOT_TAKEN.match(line):
                self.facts.kind = _k.INPUT
            elif in_use := _IN_USE.match(line):
                self.facts.session = in_use[1]  # an attempt before this one began it: it can be gone on with
        self.complained(line)

    def _system(self, subtype: str, event: Record) -> Iterator[Doing]:
        if mode := text_of(event, "permissionMode"):
            self._planning = mode == "plan"
        match subtype:
            case "init" | "session_start":
                self._goes_on()
                self.facts.session = text_of(event, "session_id") or self.facts.session
                self.facts.model = text_of(event, "model") or self.facts.model
                if self.facts.sleep is not None and self._turns:
                    self.facts.sleep = None  # it has woken itself
                yield Began(session=self.facts.session, model=self.facts.model)
            case "api_retry":
                self.facts.kind = kind_of_status(count_of(event, "error_status")) or self.facts.kind
                why = text_of(event, "error") or f"status {count_of(event, 'error_status')}"
                yield Held(why=one_line(why), for_ms=count_of(event, "retry_delay_ms") or None)
            case "permission_denied":
                yield from self._denied(text_of(event, "tool_name", "tool"), text_of(event, "message", "reason"))
            case "status" | "hook_started" | "hook_response" | "hook_progress" | "session_state_changed":
                return
            case _:
                yield unknown(event)

    def _goes_on(self) -> None:
        """A result was not the end."""
        if self.facts.concluded:
            self.facts.concluded, self.facts.ok, self.facts.kind, self.facts.error = False, None, None, ""

    def _assistant(self, event: Record) -> Iterator[Doing]:
        self._goes_on()
        message = record_of(event, "message")
        mine = not event.get("parent_tool_use_id")
        mark = text_of(event, "error")
        if mine:
            self._mark = _MARKS.get(mark)
            self._refused = text_of(message, "stop_reason") == "refusal"
            if not mark:
                self.facts.kind = None  # its service answers again
                self.facts.reset_at_ms = None
        yield from self._counted(message, mine)
        for part in records_of(message, "content"):
            yield from self._part(part, mine)

    def _counted(self, message: Record, mine: bool) -> Iterator[Doing]:
        """A message comes in several events, each with the usage so far."""
        if text_of(message, "model") == "<synthetic>":
            return
        usage = record_of(message, "usage")
        now = (*_read_tokens(usage), count_of(usage, "output_tokens"))
        id_ = text_of(message, "id")
        if not id_ or id_ != self._message:
            self._message, self._of_message = id_, (0, 0, 0)
            if mine:
                self._turns += 1
                yield Turned(number=self._turns)
        grown = [max(0, new - old) for new, old in zip(now, self._of_message, strict=True)]
        if any(grown):
            self._read, self._cached, self._wrote = (
                self._read + grown[0],
                self._cached + grown[1],
                self._wrote + grown[2],
            )
            self._of_message = now
            self._heard += grown[0] + grown[2]
            yield self._spent()

    def _spent(self) -> Spent:
        return self.spent(self._read, self._cached, self._wrote, self._turns, self._cost)

    def _part(self, part: Record, mine: bool) -> Iterator[Doing]:
        match text_of(part, "type"):
            case "text" if mine and text_of(part, "text"):
                yield Said(text=cut(text_of(part, "text")))
            case "thinking" if mine and text_of(part, "thinking"):
                yield Thought(text=cut(text_of(part, "thinking")))
            case "tool_use" | "server_tool_use":
                yield from self._tool(text_of(part, "id"), text_of(part, "name"), record_of(part, "input"))

    def _tool(self, id_: str, tool: str, given: Record) -> Iterator[Doing]:
        yield self.calls(id_, tool, given)
        if tool == "TodoWrite":
            yield planned(records_of(given, "todos"))
        elif tool == "ScheduleWakeup" and (seconds := number_of(given, "delaySeconds")) > 0:
            self.facts.sleep = Sleeps(
                for_ms=int(seconds * 1_000), prompt=answer(text_of(given, "prompt")), why=cut(text_of(given, "reason"))
            )
            yield self.facts.sleep

    def _user(self, event: Record) -> Iterator[Doing]:
        """The ends of tools; and words that Claude Code itself puts there."""
        for part in records_of(record_of(event, "message"), "content"):
            if text_of(part, "type") == "text" and text_of(part, "text").startswith(_INTERRUPTED):
                self.facts.kind = _k.INTERRUPTED
            if text_of(part, "type") != "tool_result":
                continue
            called = self.returned(text_of(part, "tool_use_id"))
            ok = part.get("is_error") is not True
            tool = called.tool if called else ""
            text = text_within(part.get("content"))
            yield Returned(id=text_of(part, "tool_use_id")[:200], tool=tool, ok=ok, text=cut(text))
            if called and ok:
                self._planning = {"EnterPlanMode": True, "ExitPlanMode": False}.get(tool, self._planning)
                yield from self._changed(called)
            elif tool == "ScheduleWakeup":
                self.facts.sleep = None

    def _changed(self, called: Called) -> Iterator[Doing]:
        if called.tool in _WRITES and isinstance(called.input, dict):
            path = text_of(called.input, "file_path", "absolute_path", "notebook_path", "path")
            if path:
                yield Changed(path=path)

    def _denied(self, tool: str, why: str = "") -> Iterator[Doing]:
        tool = one_line(tool) or "a tool"
        if len(self.facts.denials) < _DENIALS:
            self.facts.denials.append(tool)
        yield Denied(tool=tool, why=one_line(why))

    def _limit(self, info: Record) -> Iterator[Doing]:
        status, until = text_of(info, "status"), _epoch_ms(number_of(info, "resetsAt"))
        reached = status == "rejected" and text_of(info, "overageStatus") not in ("allowed", "allowed_warning")
        if reached:
            self.facts.kind, self.facts.reset_at_ms = _k.LIMITED, until
        if reached or status == "allowed_warning":
            yield Limited(reached=reached, until_ms=until, what=one_line(text_of(info, "rateLimitType")))

    def _cursor_tool(self, event: Record) -> Iterator[Doing]:
        """Cursor tells its tools beside its messages."""
        self._goes_on()
        id_ = text_of(event, "call_id", "id")
        tool, given, ended = tool_of(record_of(event, "tool_call"))
        if text_of(event, "subtype") != "completed":
            yield from self._tool(id_, tool, given)
            return
        called = self.returned(id_)
        if "rejected" in ended:
            yield from self._denied(tool, text_of(record_of(ended, "rejected"), "reason"))
        ok = "error" not in ended and "rejected" not in ended
        yield Returned(id=id_[:200], tool=called.tool if called else tool, ok=ok)
        if called and ok:
            yield from self._changed(called)

    def _result(self, event: Record) -> Iterator[Doing]:
        facts = self.facts
        facts.session = text_of(event, "session_id") or facts.session
        facts.concluded, facts.structured = True, event.get("structured_output")
        failed = event.get("is_error") is True or text_of(event, "subtype").startswith("error")
        said = text_of(event, "result")
        facts.ok, facts.text = not failed, "" if failed else answer(said)
        facts.error = error_text(said or _errors(event)) if failed else ""
        facts.kind = self._of_error(event) if failed else self._of_answer(event)
        if facts.kind is not _k.LIMITED:
            facts.reset_at_ms = None
        told = len(facts.denials)
        denied = [text_of(each, "tool_name") for each in records_of(event, "permission_denials")]
        for tool in denied[told:]:
            yield from self._denied(tool)
        yield self._billed(event)
        yield Concluded(ok=facts.ok, text=cut(facts.text or facts.error))

    def _of_error(self, event: Record) -> VerdictKind | None:
        """Flags first; then what the request's status and the error say."""
        if flagged := _SUBTYPES.get(text_of(event, "subtype")) or _REASONS.get(text_of(event, "terminal_reason")):
            return flagged
        if self._refused or text_of(event, "stop_reason") == "refusal":
            return _k.REFUSED
        if self.facts.error.startswith(_NO_SESSION):
            return _k.NO_SESSION
        limited = self.facts.kind is _k.LIMITED or text_of(event, "api_error") == "usage_limit_reached"
        known = kind_of(count_of(event, "api_error_status"), self.facts.error) or self._mark
        return _k.LIMITED if limited and known in (None, _k.THROTTLED, _k.LIMITED) else known

    def _of_answer(self, event: Record) -> VerdictKind | None:
        if self._refused or text_of(event, "stop_reason") == "refusal":
            return _k.REFUSED
        return _k.PLAN_ONLY if self._planning else None

    def _billed(self, event: Record) -> Spent:
        """The bill is of the conversation or of this process, by the version; what was paid before is taken off."""
        totals: dict[str, float] = {}
        if event.get("total_cost_usd") is not None:
            totals["cost_usd"] = number_of(event, "total_cost_usd")
        models = [each for each in record_of(event, "modelUsage").values() if isinstance(each, dict)]
        if models:
            read = [_read_tokens(each) for each in models]
            totals["input_tokens"] = sum(input_ for input_, _ in read)
            totals["cached_tokens"] = sum(cached for _, cached in read)
            totals["output_tokens"] = sum(count_of(each, "outputTokens") for each in models)
        elif usage := record_of(event, "usage"):
            read_, cached = _read_tokens(usage)
            self._read, self._cached = max(self._read, read_), max(self._cached, cached)
            self._wrote = max(self._wrote, count_of(usage, "output_tokens"))
        before = self._before(totals)
        spent = {name: self.since(name, total, before) for name, total in totals.items()}
        if models:
            self._read, self._cached, self._wrote = (int(spent[name]) for name in _TOKENS)
        self._cost = spent.get("cost_usd", self._cost)
        if totals:
            self.facts.totals = {**self.facts.totals, **self._after(totals, before)}
        return self._spent()

    def _before(self, totals: Mapping[str, float]) -> Mapping[str, float]:
        """What is in these totals of the attempts before: nothing if they are those of this process. That they are if
        they are nearer to the tokens that its messages have told than what they have grown by.
        """
        before = dict(self.before.totals)
        before.setdefault("cost_usd", before.pop(_PAID, 0))
        if not all(name in totals and name in before for name in _TOKENS):
            return before
        now, then = (sum(of[name] for name in ("input_tokens", "output_tokens")) for of in (totals, before))
        return {} if abs(now - self._heard) < abs(now - then - self._heard) else before

    def _after(self, totals: dict[str, float], before: Mapping[str, float]) -> dict[str, float]:
        """The totals of the conversation. A sum that the agent itself does not tell has a name of its own: it lacks
        what attempts have cost that were killed.
        """
        then = self.before.totals
        if before or not then:
            self.facts.totals = {name: total for name, total in self.facts.totals.items() if name != _PAID}
            return totals
        self.facts.totals = {name: total for name, total in self.facts.totals.items() if name != "cost_usd"}
        sums = {name: totals[name] + then[name] for name in _TOKENS}
        paid = then.get(_PAID, then.get("cost_usd", 0))
        return {**sums, **({_PAID: paid + totals["cost_usd"]} if "cost_usd" in totals else {})}


def _read_tokens(usage: Record) -> tuple[int, int]:
    """All that was read, and what of it came from the cache."""
    cached = count_of(usage, "cache_read_input_tokens", "cacheReadInputTokens")
    fresh = count_of(usage, "input_tokens", "inputTokens")
    return fresh + cached + count_of(usage, "cache_creation_input_tokens", "cacheCreationInputTokens"), cached


def _errors(event: Record) -> str:
    """Amp tells one error as text, Qwen one with a message, Claude a list."""
    listed = [one for one in list_of(event, "errors") if isinstance(one, str)]
    return "; ".join(listed[:5]) or text_of(event, "error") or text_of(record_of(event, "error"), "message")


def _epoch_ms(number: float) -> int | None:
    """Moments are told in seconds, and by some in milliseconds."""
    if number <= 0:
        return None
    return int(number if number > 1e11 else number * 1_000)
