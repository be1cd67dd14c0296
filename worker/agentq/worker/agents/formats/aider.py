"""Reads aider's text output.

aider exits with 0 even after an error. So this is the only format that reads an error from prose: a line that begins
with `litellm.` and the name of an error, if no answer follows it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from agentq.coordinator.model.agent_events import (
    AccountLimitEvent,
    AgentEvent,
    FileChangeEvent,
    ModelTurnEvent,
    SpendingEvent,
    StartedEvent,
    ThrottledEvent,
)
from agentq.worker.agents.accounts.pricing import compute_cost
from agentq.worker.agents.accounts.service_errors import classify_service_error
from agentq.worker.agents.formats.plain_text import TextReader
from agentq.worker.agents.formats.safe_values import clean_line, cut_line
from agentq.worker.agents.reader import PriorConversation
from agentq.worker.agents.verdicts import VerdictKind

_Kind = VerdictKind
_ERROR_LINE = re.compile(r"^litellm\.(?:exceptions\.)?((?:\w+Error|Timeout))\b:?\s*(.*)")
_KIND_OF_ERROR = {
    "AuthenticationError": _Kind.AUTH,
    "PermissionDeniedError": _Kind.AUTH,
    "BudgetExceededError": _Kind.CREDIT,
    "ContextWindowExceededError": _Kind.CONTEXT,
    "ContentPolicyViolationError": _Kind.REFUSED,
    "NotFoundError": _Kind.INPUT,
    "BadRequestError": _Kind.INPUT,
    "UnprocessableEntityError": _Kind.INPUT,
    "RateLimitError": _Kind.THROTTLED,
    "ServiceUnavailableError": _Kind.THROTTLED,
    "InternalServerError": _Kind.THROTTLED,
    "APIConnectionError": _Kind.THROTTLED,
    "BadGatewayError": _Kind.THROTTLED,
    "Timeout": _Kind.THROTTLED,
}
_TOKENS_LINE = re.compile(r"^Tokens: (.+?)\.?(?: Cost: (.+))?$")
_TOKEN_COUNT = re.compile(r"([\d.,]+)([kM]?) (sent|cache write|cache hit|received)")
_COST_TEXT = re.compile(r"\$([\d.]+) session")
_MODEL_LINE = re.compile(r"^(?:Main model|Model): (\S+)")
_EDITED_LINE = re.compile(r"^(?:Applied edit to|Creating empty file) (.+)$")
_RETRY_LINE = re.compile(r"^Retrying in ([\d.]+) seconds")
_UNIT_SCALE = {"": 1, "k": 1_000, "M": 1_000_000}


class AiderReader(TextReader):
    """Reads the output of one attempt."""

    def __init__(self, before: PriorConversation) -> None:
        super().__init__(before)
        self._before = before
        self._read, self._cached, self._wrote, self._turns = 0, 0, 0, 0

    def read(self, line: str) -> Iterable[AgentEvent]:
        return [*super().read(line), *self._meant(clean_line(line).rstrip())]

    def _meant(self, line: str) -> Iterator[AgentEvent]:
        if error := _ERROR_LINE.match(line):
            yield from self._error(error[1], error[2], line)
        elif tokens := _TOKENS_LINE.match(line):
            self.facts.kind, self.facts.error = None, ""  # it was answered: what looked like an error was of the answer
            self._turns += 1
            yield ModelTurnEvent(number=self._turns)
            yield self._spent(tokens[1], tokens[2] or "")
        elif model := _MODEL_LINE.match(line):
            self.facts.model = cut_line(model[1])
            yield StartedEvent(model=self.facts.model)
        elif edited := _EDITED_LINE.match(line):
            yield FileChangeEvent(path=edited[1])
        elif retry := _RETRY_LINE.match(line):
            yield ThrottledEvent(
                why=cut_line(self.facts.error) or "its service failed", for_ms=int(_parse_number(retry[1]) * 1_000)
            )

    def _error(self, name: str, message: str, line: str) -> Iterator[AgentEvent]:
        known = _KIND_OF_ERROR.get(name)
        words = classify_service_error(0, re.sub(r"^[\w. ]*(?:Exception|Error)\s*[-:]+\s*", "", message))
        self.facts.kind = words or known or _Kind.AGENT_ERROR
        self.facts.error = cut_line(line, 600)
        if self.facts.kind is _Kind.LIMITED:
            yield AccountLimitEvent(reached=True, what=cut_line(message))

    def _spent(self, tokens: str, cost: str) -> SpendingEvent:
        for number, scale, what in _TOKEN_COUNT.findall(tokens):
            count = int(_parse_number(number) * _UNIT_SCALE[scale])
            if what == "received":
                self._wrote += count
            else:
                self._read += count
                self._cached += count if what == "cache hit" else 0
        session = _COST_TEXT.search(cost)
        dollars = _parse_number(session[1]) if session else None
        if dollars is None:
            dollars = compute_cost(self._before.prices, self.facts.model, self._read, self._cached, self._wrote)
        self.facts.spent = SpendingEvent(
            cost_usd=dollars, input_tokens=self._read, cached_tokens=self._cached, output_tokens=self._wrote,
            turns=self._turns,
        )  # fmt: skip
        return self.facts.spent


def _parse_number(text: str) -> float:
    try:
        return min(float(text.replace(",", "").rstrip(".")), 1e12)
    except ValueError:
        return 0.0
