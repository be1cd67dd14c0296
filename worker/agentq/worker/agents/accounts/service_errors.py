"""Errors of the services behind agents: classified by HTTP status, and by a few phrases that are more specific. Applied
only to errors, never to an agent's answer.
"""

from __future__ import annotations

import re

from agentq.worker.agents.accounts.limit_resets import is_limit_error
from agentq.worker.agents.verdicts import VerdictKind

_Kind = VerdictKind
_KIND_OF_STATUS = {
    400: _Kind.INPUT,
    401: _Kind.AUTH,
    402: _Kind.CREDIT,
    403: _Kind.AUTH,
    404: _Kind.INPUT,
    408: _Kind.THROTTLED,
    413: _Kind.CONTEXT,
    422: _Kind.INPUT,
    429: _Kind.THROTTLED,
}
_PHRASE_START = r"(?:^|[\"':.·]\s*)"
_KIND_PHRASES = (
    (
        _Kind.CREDIT,
        rf"{_PHRASE_START}(?:your )?credit balance is too low|insufficient[_ ](?:quota|credits|funds|balance)"
        rf"|{_PHRASE_START}(?:you (?:have )?)?exceeded your current quota, please check your plan and billing"
        rf"|{_PHRASE_START}quota exceeded\. check your plan and billing|billing_(?:error|hard_limit_reached|not_active)"
        rf"|{_PHRASE_START}your workspace is out of credits|requires billing to be enabled",
    ),
    (
        _Kind.CONTEXT,
        rf"{_PHRASE_START}prompt is too long|context_length_exceeded|{_PHRASE_START}this model's maximum context length"
        rf"|ran out of room in the model's context window|{_PHRASE_START}input is too "
        rf"long|{_PHRASE_START}conversation too long"
        r"|exceeds? the (?:model's )?(?:maximum )?context (?:window|length)|input token count .{0,40}exceeds",
    ),
    (
        _Kind.AUTH,
        rf"{_PHRASE_START}invalid api key|{_PHRASE_START}incorrect api key|authentication_error|invalid_api_key"
        rf"|{_PHRASE_START}please run /login|{_PHRASE_START}not logged in|oauth token (?:has expired|revoked)|api "
        rf"key not valid"
        rf"|{_PHRASE_START}missing bearer|{_PHRASE_START}your access token could not be refreshed",
    ),
    (
        _Kind.THROTTLED,
        r"overloaded_error|rate_limit_(?:error|exceeded)|model is at capacity|resource[_ ](?:has been )?exhausted"
        rf"|{_PHRASE_START}(?:the )?(?:model|server|service) is (?:currently )?overloaded|experiencing high demand",
    ),
    (_Kind.INPUT, r"invalid_request_error|invalid_argument"),
    (_Kind.REFUSED, r"content[_ ](?:filter|policy)|appears to violate our usage policy|safety (?:settings|filter)"),
)
_KIND_PATTERNS = tuple((kind, re.compile(phrase, re.IGNORECASE)) for kind, phrase in _KIND_PHRASES)
_SCANNED_CHARACTERS = 4_000


def classify_status(status: int) -> VerdictKind | None:
    """What an HTTP status means for a run; None if it is no failure."""
    if 500 <= status < 600:
        return _Kind.THROTTLED
    return _KIND_OF_STATUS.get(status)


def classify_service_error(status: int, error: str) -> VerdictKind | None:
    """What an error of the service means. The text counts before the status: 400 and 429 have many meanings."""
    error = error[:_SCANNED_CHARACTERS].replace("’", "'")
    if is_limit_error(error):
        return _Kind.LIMITED
    if (by_status := classify_status(status)) in (_Kind.AUTH, _Kind.CREDIT):
        return by_status
    return next((kind for kind, phrase in _KIND_PATTERNS if phrase.search(error)), by_status)
