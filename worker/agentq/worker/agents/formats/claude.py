"""Reads Claude Code's JSON stream, and those of Amp, Qwen Code and Cursor, which omit some fields and add others.

Its fields need care. A failed request is a `success` with `is_error`. A `result` is not always the last event: the
agent may wake itself and continue. Cost and tokens by model are of the whole conversation in some versions and of the
process in others. A refusal by its service arrives as an answer. Errors are read from flags, from the status of the
request and, for limits, from the text of a result marked as an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from agentq.coordinator.model.agent_events import (
    AccountLimitEvent,
    AgentEvent,
    FileChangeEvent,
    ModelTurnEvent,
    ResultEvent,
    SleepRequestEvent,
    SpendingEvent,
    StartedEvent,
    TextEvent,
    ThoughtEvent,
    ThrottledEvent,
    ToolCallEvent,
    ToolDeniedEvent,
    ToolResultEvent,
    truncate_text,
)
from agentq.worker.agents.accounts.service_errors import classify_service_error, classify_status
from agentq.worker.agents.formats.json_lines import JsonLinesReader, build_plan_event, build_unknown_event, cut_error
from agentq.worker.agents.formats.safe_values import (
    Record,
    cut_answer,
    cut_line,
    extract_text,
    get_count,
    get_list,
    get_number,
    get_record,
    get_records,
    get_text,
)
from agentq.worker.agents.reader import PriorConversation
from agentq.worker.agents.verdicts import VerdictKind

_Kind = VerdictKind
_CURSOR_TOOL_NAMES = {"shell": "Bash", "edit": "Edit", "write": "Write", "read": "Read"}
_WRITE_TOOLS = (
    "Edit",
    "Write",
    "MultiEdit",
    "NotebookEdit",
    "edit",
    "write_file",
    "create_file",
    "edit_file",
    "replace",
)
_KIND_OF_SUBTYPE = {
    "error_max_turns": _Kind.MAX_TURNS,
    "error_max_budget_usd": _Kind.BUDGET,
}
_KIND_OF_REASON = {
    "max_turns": _Kind.MAX_TURNS,
    "prompt_too_long": _Kind.CONTEXT,
    "aborted_tools": _Kind.INTERRUPTED,
    "aborted_streaming": _Kind.INTERRUPTED,
}
_KIND_OF_ERROR_CODE = {
    "authentication_failed": _Kind.AUTH,
    "oauth_org_not_allowed": _Kind.AUTH,
    "billing_error": _Kind.CREDIT,
    "rate_limit": _Kind.THROTTLED,
    "overloaded": _Kind.THROTTLED,
    "server_error": _Kind.THROTTLED,
    "invalid_request": _Kind.INPUT,
}
"""Marks of an answer that is really a failed request."""
_NO_SESSION_TEXT = "No conversation found with session ID"
_INTERRUPTED_TEXT = "[Request interrupted by user"
_SESSION_IN_USE = re.compile(r"^(?:Error: )?Session ID (\S{1,100}) is already in use")
_INVALID_ARGUMENTS = re.compile(r"^(?:error: unknown option|error: option '|Error: Input must be provided)")
_DENIALS_MAX = 100
_TOKEN_FIELDS = ("input_tokens", "cached_tokens", "output_tokens")
_PAID_TOTAL = "paid_usd"
"""The cost of a conversation, summed over processes."""


class ClaudeReader(JsonLinesReader):
    """Reads the output of one attempt."""

    def __init__(self, before: PriorConversation) -> None:
        super().__init__(before)
        self._message = ""
        self._turns = 0
        self._read, self._cached, self._wrote = 0, 0, 0
        self._of_message = (0, 0, 0)
        self._reported_tokens = 0
        """Input and output tokens that its messages reported."""
        self._cost: float | None = None
        self._mark: VerdictKind | None = None
        self._refused = False
        self._planning = False

    def read_event(self, kind: str, event: Record) -> Iterable[AgentEvent]:
        self.facts.has_output = True
        match kind:
            case "system":
                return self._system(get_text(event, "subtype"), event)
            case "assistant":
                return self._assistant(event)
            case "user":
                return self._user(event)
            case "result":
                return self._result(event)
            case "rate_limit_event":
                return self._limit(get_record(event, "rate_limit_info"))
            case "tool_call":
                return self._cursor_tool(event)
            case "thinking" | "stream_event" | "control_response" | "keep_alive" | "tool_progress":
                return []
        return [build_unknown_event(event)]

    def read_plain(self, line: str) -> None:
        """Text printed when it fails to start."""
        if not self.facts.has_output:
            if line.startswith(_NO_SESSION_TEXT):
                self.facts.kind = _Kind.NO_SESSION
            elif _INVALID_ARGUMENTS.match(line):
                self.facts.kind = _Kind.INPUT
            elif in_use := _SESSION_IN_USE.match(line):
                self.facts.session = in_use[1]  # an attempt before this one began it: it can be gone on with
        self.note_complaint(line)

    def _system(self, subtype: str, event: Record) -> Iterator[AgentEvent]:
        if mode := get_text(event, "permissionMode"):
            self._planning = mode == "plan"
        match subtype:
            case "init" | "session_start":
                self._goes_on()
                self.facts.session = get_text(event, "session_id") or self.facts.session
                self.facts.model = get_text(event, "model") or self.facts.model
                if self.facts.sleep is not None and self._turns:
                    self.facts.sleep = None  # it has woken itself
                yield StartedEvent(session=self.facts.session, model=self.facts.model)
            case "api_retry":
                self.facts.kind = classify_status(get_count(event, "error_status")) or self.facts.kind
                why = get_text(event, "error") or f"status {get_count(event, 'error_status')}"
                yield ThrottledEvent(why=cut_line(why), for_ms=get_count(event, "retry_delay_ms") or None)
            case "permission_denied":
                yield from self._denied(get_text(event, "tool_name", "tool"), get_text(event, "message", "reason"))
            case "status" | "hook_started" | "hook_response" | "hook_progress" | "session_state_changed":
                return
            case _:
                yield build_unknown_event(event)

    def _goes_on(self) -> None:
        """A result was not the end."""
        if self.facts.concluded:
            self.facts.concluded, self.facts.ok, self.facts.kind, self.facts.error = False, None, None, ""

    def _assistant(self, event: Record) -> Iterator[AgentEvent]:
        self._goes_on()
        message = get_record(event, "message")
        mine = not event.get("parent_tool_use_id")
        mark = get_text(event, "error")
        if mine:
            self._mark = _KIND_OF_ERROR_CODE.get(mark)
            self._refused = get_text(message, "stop_reason") == "refusal"
            if not mark:
                self.facts.kind = None  # its service answers again
                self.facts.reset_at_ms = None
        yield from self._counted(message, mine)
        for part in get_records(message, "content"):
            yield from self._part(part, mine)

    def _counted(self, message: Record, mine: bool) -> Iterator[AgentEvent]:
        """A message arrives in several events, each with the usage so far."""
        if get_text(message, "model") == "<synthetic>":
            return
        usage = get_record(message, "usage")
        now = (*_count_input_tokens(usage), get_count(usage, "output_tokens"))
        id_ = get_text(message, "id")
        if not id_ or id_ != self._message:
            self._message, self._of_message = id_, (0, 0, 0)
            if mine:
                self._turns += 1
                yield ModelTurnEvent(number=self._turns)
        grown = [max(0, new - old) for new, old in zip(now, self._of_message, strict=True)]
        if any(grown):
            self._read, self._cached, self._wrote = (
                self._read + grown[0],
                self._cached + grown[1],
                self._wrote + grown[2],
            )
            self._of_message = now
            self._reported_tokens += grown[0] + grown[2]
            yield self._spent()

    def _spent(self) -> SpendingEvent:
        return self.set_spending(self._read, self._cached, self._wrote, self._turns, self._cost)

    def _part(self, part: Record, mine: bool) -> Iterator[AgentEvent]:
        match get_text(part, "type"):
            case "text" if mine and get_text(part, "text"):
                yield TextEvent(text=truncate_text(get_text(part, "text")))
            case "thinking" if mine and get_text(part, "thinking"):
                yield ThoughtEvent(text=truncate_text(get_text(part, "thinking")))
            case "tool_use" | "server_tool_use":
                yield from self._tool(get_text(part, "id"), get_text(part, "name"), get_record(part, "input"))

    def _tool(self, id_: str, tool: str, given: Record) -> Iterator[AgentEvent]:
        yield self.start_tool(id_, tool, given)
        if tool == "TodoWrite":
            yield build_plan_event(get_records(given, "todos"))
        elif tool == "ScheduleWakeup" and (seconds := get_number(given, "delaySeconds")) > 0:
            self.facts.sleep = SleepRequestEvent(
                for_ms=int(seconds * 1_000),
                prompt=cut_answer(get_text(given, "prompt")),
                why=truncate_text(get_text(given, "reason")),
            )
            yield self.facts.sleep

    def _user(self, event: Record) -> Iterator[AgentEvent]:
        """Ends of tool calls, and texts that Claude Code inserts itself."""
        for part in get_records(get_record(event, "message"), "content"):
            if get_text(part, "type") == "text" and get_text(part, "text").startswith(_INTERRUPTED_TEXT):
                self.facts.kind = _Kind.INTERRUPTED
            if get_text(part, "type") != "tool_result":
                continue
            called = self.end_tool(get_text(part, "tool_use_id"))
            ok = part.get("is_error") is not True
            tool = called.tool if called else ""
            text = extract_text(part.get("content"))
            yield ToolResultEvent(id=get_text(part, "tool_use_id")[:200], tool=tool, ok=ok, text=truncate_text(text))
            if called and ok:
                self._planning = {"EnterPlanMode": True, "ExitPlanMode": False}.get(tool, self._planning)
                yield from self._changed(called)
            elif tool == "ScheduleWakeup":
                self.facts.sleep = None

    def _changed(self, called: ToolCallEvent) -> Iterator[AgentEvent]:
        if called.tool in _WRITE_TOOLS and isinstance(called.input, dict):
            path = get_text(called.input, "file_path", "absolute_path", "notebook_path", "path")
            if path:
                yield FileChangeEvent(path=path)

    def _denied(self, tool: str, why: str = "") -> Iterator[AgentEvent]:
        tool = cut_line(tool) or "a tool"
        if len(self.facts.denials) < _DENIALS_MAX:
            self.facts.denials.append(tool)
        yield ToolDeniedEvent(tool=tool, why=cut_line(why))

    def _limit(self, info: Record) -> Iterator[AgentEvent]:
        status, until = get_text(info, "status"), _to_epoch_ms(get_number(info, "resetsAt"))
        reached = status == "rejected" and get_text(info, "overageStatus") not in ("allowed", "allowed_warning")
        if reached:
            self.facts.kind, self.facts.reset_at_ms = _Kind.LIMITED, until
        if reached or status == "allowed_warning":
            yield AccountLimitEvent(reached=reached, until_ms=until, what=cut_line(get_text(info, "rateLimitType")))

    def _cursor_tool(self, event: Record) -> Iterator[AgentEvent]:
        """Cursor reports its tools beside its messages."""
        self._goes_on()
        id_ = get_text(event, "call_id", "id")
        tool, given, ended = _parse_cursor_call(get_record(event, "tool_call"))
        if get_text(event, "subtype") != "completed":
            yield from self._tool(id_, tool, given)
            return
        called = self.end_tool(id_)
        if "rejected" in ended:
            yield from self._denied(tool, get_text(get_record(ended, "rejected"), "reason"))
        ok = "error" not in ended and "rejected" not in ended
        yield ToolResultEvent(id=id_[:200], tool=called.tool if called else tool, ok=ok)
        if called and ok:
            yield from self._changed(called)

    def _result(self, event: Record) -> Iterator[AgentEvent]:
        facts = self.facts
        facts.session = get_text(event, "session_id") or facts.session
        facts.concluded, facts.structured = True, event.get("structured_output")
        failed = event.get("is_error") is True or get_text(event, "subtype").startswith("error")
        text = get_text(event, "result")
        facts.ok, facts.text = not failed, "" if failed else cut_answer(text)
        facts.error = cut_error(text or _extract_error(event)) if failed else ""
        facts.kind = self._of_error(event) if failed else self._of_answer(event)
        if facts.kind is not _Kind.LIMITED:
            facts.reset_at_ms = None
        reported = len(facts.denials)
        denied = [get_text(each, "tool_name") for each in get_records(event, "permission_denials")]
        for tool in denied[reported:]:
            yield from self._denied(tool)
        yield self._billed(event)
        yield ResultEvent(ok=facts.ok, text=truncate_text(facts.text or facts.error))

    def _of_error(self, event: Record) -> VerdictKind | None:
        """By flags first, then by the request's status and error."""
        if flagged := _KIND_OF_SUBTYPE.get(get_text(event, "subtype")) or _KIND_OF_REASON.get(
            get_text(event, "terminal_reason")
        ):
            return flagged
        if self._refused or get_text(event, "stop_reason") == "refusal":
            return _Kind.REFUSED
        if self.facts.error.startswith(_NO_SESSION_TEXT):
            return _Kind.NO_SESSION
        limited = self.facts.kind is _Kind.LIMITED or get_text(event, "api_error") == "usage_limit_reached"
        known = classify_service_error(get_count(event, "api_error_status"), self.facts.error) or self._mark
        return _Kind.LIMITED if limited and known in (None, _Kind.THROTTLED, _Kind.LIMITED) else known

    def _of_answer(self, event: Record) -> VerdictKind | None:
        if self._refused or get_text(event, "stop_reason") == "refusal":
            return _Kind.REFUSED
        return _Kind.PLAN_ONLY if self._planning else None

    def _billed(self, event: Record) -> SpendingEvent:
        """The bill is of the conversation or of this process, by version; earlier payments are subtracted."""
        totals: dict[str, float] = {}
        if event.get("total_cost_usd") is not None:
            totals["cost_usd"] = get_number(event, "total_cost_usd")
        models = [each for each in get_record(event, "modelUsage").values() if isinstance(each, dict)]
        if models:
            read = [_count_input_tokens(each) for each in models]
            totals["input_tokens"] = sum(input_ for input_, _ in read)
            totals["cached_tokens"] = sum(cached for _, cached in read)
            totals["output_tokens"] = sum(get_count(each, "outputTokens") for each in models)
        elif usage := get_record(event, "usage"):
            read_, cached = _count_input_tokens(usage)
            self._read, self._cached = max(self._read, read_), max(self._cached, cached)
            self._wrote = max(self._wrote, get_count(usage, "output_tokens"))
        before = self._before(totals)
        spent = {name: self.grown_since(name, total, before) for name, total in totals.items()}
        if models:
            self._read, self._cached, self._wrote = (int(spent[name]) for name in _TOKEN_FIELDS)
        self._cost = spent.get("cost_usd", self._cost)
        if totals:
            self.facts.totals = {**self.facts.totals, **self._after(totals, before)}
        return self._spent()

    def _before(self, totals: Mapping[str, float]) -> Mapping[str, float]:
        """The part of these totals from earlier attempts: none if they are of this process alone. They are if they are
        nearer to the tokens that its messages reported than their growth is.
        """
        before = dict(self.before.totals)
        before.setdefault("cost_usd", before.pop(_PAID_TOTAL, 0))
        if not all(name in totals and name in before for name in _TOKEN_FIELDS):
            return before
        now, then = (sum(of[name] for name in ("input_tokens", "output_tokens")) for of in (totals, before))
        return {} if abs(now - self._reported_tokens) < abs(now - then - self._reported_tokens) else before

    def _after(self, totals: dict[str, float], before: Mapping[str, float]) -> dict[str, float]:
        """The totals of the conversation. A sum that the agent does not report has a name of its own: it lacks the cost
        of killed attempts.
        """
        then = self.before.totals
        if before or not then:
            self.facts.totals = {name: total for name, total in self.facts.totals.items() if name != _PAID_TOTAL}
            return totals
        self.facts.totals = {name: total for name, total in self.facts.totals.items() if name != "cost_usd"}
        sums = {name: totals[name] + then[name] for name in _TOKEN_FIELDS}
        paid = then.get(_PAID_TOTAL, then.get("cost_usd", 0))
        return {**sums, **({_PAID_TOTAL: paid + totals["cost_usd"]} if "cost_usd" in totals else {})}


def _count_input_tokens(usage: Record) -> tuple[int, int]:
    """All input tokens, and the cached ones among them."""
    cached = get_count(usage, "cache_read_input_tokens", "cacheReadInputTokens")
    fresh = get_count(usage, "input_tokens", "inputTokens")
    return fresh + cached + get_count(usage, "cache_creation_input_tokens", "cacheCreationInputTokens"), cached


def _extract_error(event: Record) -> str:
    """Amp reports an error as text, Qwen as an object with a message, Claude as a list."""
    listed = [one for one in get_list(event, "errors") if isinstance(one, str)]
    return "; ".join(listed[:5]) or get_text(event, "error") or get_text(get_record(event, "error"), "message")


def _to_epoch_ms(number: float) -> int | None:
    """Times are in seconds, from some agents in milliseconds."""
    if number <= 0:
        return None
    return int(number if number > 1e11 else number * 1_000)


def _parse_cursor_call(call: Record) -> tuple[str, Record, Record]:
    """The tool's name as Claude has it, its input, and how it ended. Cursor has the call in `{"editToolCall": {…}}`."""
    for name, details in call.items():
        if isinstance(details, dict) and name.endswith("ToolCall"):
            short = name.removesuffix("ToolCall")
            return _CURSOR_TOOL_NAMES.get(short, short), get_record(details, "args"), get_record(details, "result")
    function = get_record(call, "function")
    return get_text(function, "name"), {"arguments": get_text(function, "arguments")}, {}
