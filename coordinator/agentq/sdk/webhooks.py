"""Verifies received webhooks: the message is from agentq, unchanged and recent.

    from agentq.sdk.webhooks import verify

    message = verify(body, headers, "whsec_…")     # the bytes as received, before parsing
    if message.id not in seen:
        ...

A message may come twice, with the same id. A message older, or further in the future, than five minutes is refused, so
that it cannot be replayed later; keep the ids of five minutes to handle each message once.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentq.coordinator.clock import wall_ms
from agentq.coordinator.errors import AgentqError
from agentq.coordinator.webhooks.signature import SIGNATURE_VERSION, make_secret, sign_message

__all__ = ["BadSignature", "VerifiedMessage", "make_secret", "verify"]

TOLERANCE_S = 300


class BadSignature(AgentqError):
    """The message has a wrong signature, or is too old."""


@dataclass(frozen=True, slots=True)
class VerifiedMessage:
    """What was sent: `type` such as `run.failed`, and in `facts` the event."""

    id: str
    type: str
    at_s: int
    facts: dict[str, Any]


def verify(
    body: bytes,
    headers: Mapping[str, str],
    secret: str | Sequence[str],
    *,
    tolerance_s: int = TOLERANCE_S,
    now_s: Callable[[], float] = lambda: wall_ms() / 1000,
) -> VerifiedMessage:
    """The message, if one of the secrets has signed it; BadSignature if not."""
    given = {name.lower(): value for name, value in headers.items()}
    try:
        message, stamp, told = (given[f"webhook-{name}"] for name in ("id", "timestamp", "signature"))
        at_s = int(stamp)
    except KeyError as error:
        raise BadSignature(f"The message has no header {error.args[0]}.") from error
    except ValueError as error:
        raise BadSignature("The header webhook-timestamp is no number.") from error
    if abs(now_s() - at_s) > tolerance_s:
        raise BadSignature(f"The message was sent more than {tolerance_s} s ago, or will be.")
    secrets = [secret] if isinstance(secret, str) else list(secret)
    good = [sign_message(each, message, at_s, body) for each in secrets]
    shown = [each for each in told.split() if each.startswith(f"{SIGNATURE_VERSION},")]
    # All are compared, so that the time it takes tells nothing.
    fits = [hmac.compare_digest(each.encode(), mine.encode()) for each in shown for mine in good]
    if not any(fits):
        raise BadSignature("None of its signatures fits.")
    content = json.loads(body)
    return VerifiedMessage(message, content["type"], at_s, content["data"])
