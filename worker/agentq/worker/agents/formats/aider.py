"""aider's text. It ends with 0 whatever happened, so this is the one place where an error is read from prose: a line
that begins with `litellm.` and the name of an error, and that no answer followed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from agentq.coordinator.doings import Began, Changed, Doing, Held, Limited, Spent, Turned
from agentq.worker.agents.formats.text import TextReader
from agentq.worker.agents.formats.values import clean, one_line
from agentq.worker.agents.pricing import cost_of
from agentq.worker.agents.reading import Before
from agentq.worker.agents.services import kind_of
from agentq.worker.agents.verdicts import VerdictKind

_k = VerdictKind
_ERROR = re.compile(r"^litellm\.(?:exceptions\.)?((?:\w+Error|Timeout))\b:?\s*(.*)")
_ERRORS = {
    "AuthenticationError": _k.AUTH,
    "PermissionDeniedError": _k.AUTH,
    "BudgetExceededError": _k.CREDIT,
    "ContextWindowExceededError": _k.CONTEXT,
    "ContentPolicyViolationError": _k.REFUSED,
    "NotFoundError": _k.INPUT,
    "BadRequestError": _k.INPUT,
    "UnprocessableEntityError": _k.INPUT,
    "RateLimitError": _k.THROTTLED,
    "ServiceUnavailableError": _k.THROTTLED,
    "InternalServerError": _k.THROTTLED,
    "APIConnectionError": _k.THROTTLED,
    "BadGatewayError": _k.THROTTLED,
    "Timeout": _k.THROTTLED,
}
_TOKENS = re.compile(r"^Tokens: (.+?)\.?(?: Cost: (.+))?$")
_COUNT = re.compile(r"([\d.,]+)([kM]?) (sent|cache write|cache hit|received)")
_COST = re.compile(r"\$([\d.]+) session")
_MODEL = re.compile(r"^(?:Main model|Model): (\S+)")
_EDITED = re.compile(r"^(?:Applied edit to|Creating empty file) (.+)$")
_RETRY = re.compile(r"^Retrying in ([\d.]+) seconds")
_SCALE = {"": 1, "k": 1_000, "M": 1_000_000}


class AiderReader(TextReader):
    """One attempt's."""

    def __init__(self, before: Before) -> None:
        super().__init__(before)
        self._before = before
        self._read, self._cached, self._wrote, self._turns = 0, 0, 0, 0

    def read(self, line: str) -> Iterable[Doing]:
        return [*super().read(line), *self._meant(clean(line).rstrip())]

    def _meant(self, line: str) -> Iterator[Doing]:
        if error := _ERROR.match(line):
            yield from self._error(error[1], error[2], line)
        elif tokens := _TOKENS.match(line):
            self.facts.kind, self.facts.error = None, ""  # it was answered: what looked like an error was of the answer
            self._turns += 1
            yield Turned(number=self._turns)
            yield self._spent(tokens[1], tokens[2] or "")
        elif model := _MODEL.match(line):
            self.facts.model = one_line(model[1])
            yield Began(model=self.facts.model)
        elif edited := _EDITED.match(line):
            yield Changed(path=edited[1])
        elif retry := _RETRY.match(line):
            yield Held(why=one_line(self.facts.error) or "its service failed", for_ms=int(_number(retry[1]) * 1_000))

    def _error(self, name: str, said: str, line: str) -> Iterator[Doing]:
        known = _ERRORS.get(name)
        words = kind_of(0, re.sub(r"^[\w. ]*(?:Exception|Error)\s*[-:]+\s*", "", said))
        self.facts.kind = words or known or _k.AGENT_ERROR
        self.facts.error = one_line(line, 600)
        if self.facts.kind is _k.LIMITED:
            yield Limited(reached=True, what=one_line(said))

    def _spent(self, tokens: str, cost: str) -> Spent:
        for number, scale, what in _COUNT.findall(tokens):
            count = int(_number(number) * _SCALE[scale])
            if what == "received":
                self._wrote += count
            else:
                self._read += count
                self._cached += count if what == "cache hit" else 0
        session = _COST.search(cost)
        dollars = _number(session[1]) if session else None
        if dollars is None:
            dollars = cost_of(self._before.prices, self.facts.model, self._read, self._cached, self._wrote)
        self.facts.spent = Spent(
            cost_usd=dollars, input_tokens=self._read, cached_tokens=self._cached, output_tokens=self._wrote,
            turns=self._turns,
        )  # fmt: skip
        return self.facts.spent


def _number(text: str) -> float:
    try:
        return min(float(text.replace(",", "").rstrip(".")), 1e12)
    except ValueError:
        return 0.0
