"""What the services behind agents answer when they refuse: by the status of HTTP, and by the few phrases that say more
than it. Only words of errors are ever given to this, never an agent's answer.
"""

from __future__ import annotations

import re

from agentq.worker.agents.resets import is_limit
from agentq.worker.agents.verdicts import VerdictKind

_k = VerdictKind
_STATUSES = {
    400: _k.INPUT,
    401: _k.AUTH,
    402: _k.CREDIT,
    403: _k.AUTH,
    404: _k.INPUT,
    408: _k.THROTTLED,
    413: _k.CONTEXT,
    422: _k.INPUT,
    429: _k.THROTTLED,
}
_START = r"(?:^|[\"':.·]\s*)"
_PHRASES = (
    (
        _k.CREDIT,
        rf"{_START}(?:your )?credit balance is too low|insufficient[_ ](?:quota|credits|funds|balance)"
        rf"|{_START}(?:you (?:have )?)?exceeded your current quota, please check your plan and billing"
        rf"|{_START}quota exceeded\. check your plan and billing|billing_(?:error|hard_limit_reached|not_active)"
        rf"|{_START}your workspace is out of credits|requires billing to be enabled",
    ),
    (
        _k.CONTEXT,
        rf"{_START}prompt is too long|context_length_exceeded|{_START}this model's maximum context length"
        rf"|ran out of room in the model's context window|{_START}input is too long|{_START}conversation too long"
        r"|exceeds? the (?:model's )?(?:maximum )?context (?:window|length)|input token count .{0,40}exceeds",
    ),
    (
        _k.AUTH,
        rf"{_START}invalid api key|{_START}incorrect api key|authentication_error|invalid_api_key"
        rf"|{_START}please run /login|{_START}not logged in|oauth token (?:has expired|revoked)|api key not valid"
        rf"|{_START}missing bearer|{_START}your access token could not be refreshed",
    ),
    (
        _k.THROTTLED,
        r"overloaded_error|rate_limit_(?:error|exceeded)|model is at capacity|resource[_ ](?:has been )?exhausted"
        rf"|{_START}(?:the )?(?:model|server|service) is (?:currently )?overloaded|experiencing high demand",
    ),
    (_k.INPUT, r"invalid_request_error|invalid_argument"),
    (_k.REFUSED, r"content[_ ](?:filter|policy)|appears to violate our usage policy|safety (?:settings|filter)"),
)
_COMPILED = tuple((kind, re.compile(phrase, re.IGNORECASE)) for kind, phrase in _PHRASES)
_READ_CHARACTERS = 4_000


def kind_of_status(status: int) -> VerdictKind | None:
    """What a status of HTTP means for a run; None for one that is no failure."""
    if 500 <= status < 600:
        return _k.THROTTLED
    return _STATUSES.get(status)


def kind_of(status: int, error: str) -> VerdictKind | None:
    """What an error of the service means. Its words go before its status: 400 and 429 are said of many things."""
    error = error[:_READ_CHARACTERS].replace("’", "'")
    if is_limit(error):
        return _k.LIMITED
    if (by_status := kind_of_status(status)) in (_k.AUTH, _k.CREDIT):
        return by_status
    return next((kind for kind, phrase in _COMPILED if phrase.search(error)), by_status)
