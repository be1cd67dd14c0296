"""Signatures of webhooks by Standard Webhooks: over the message's id, the time, and the body as sent.

A secret is `whsec_` and the base64 of its key. A header may list several signatures, one for each secret in use, so
that a receiver always finds a valid one while a secret is replaced.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
from collections.abc import Iterable

from agentq.coordinator.errors import Invalid

SECRET_PREFIX = "whsec_"
KEY_BYTES = 32
KEY_BYTES_MIN = 24
KEY_BYTES_MAX = 64
SIGNATURE_VERSION = "v1"


def make_secret() -> str:
    """Make a secret."""
    return SECRET_PREFIX + base64.b64encode(os.urandom(KEY_BYTES)).decode()


def decode_secret(secret: str) -> bytes:
    """The key in a secret. The error for an invalid secret repeats no part of it."""
    try:
        key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except ValueError:
        key = b""
    if not KEY_BYTES_MIN <= len(key) <= KEY_BYTES_MAX:
        raise Invalid(
            f"The secret of a webhook is {SECRET_PREFIX} and the base64 of {KEY_BYTES_MIN} to {KEY_BYTES_MAX} random "
            f"bytes."
        )
    return key


def sign_message(secret: str, message: str, at_s: int, body: bytes) -> str:
    """One signature, as written in the header."""
    signed = b".".join((message.encode(), str(at_s).encode(), body))
    digest = hmac.new(decode_secret(secret), signed, hashlib.sha256).digest()
    return f"{SIGNATURE_VERSION},{base64.b64encode(digest).decode()}"


def sign_with_all(secrets: Iterable[str], message: str, at_s: int, body: bytes) -> str:
    """The header: one signature for each secret."""
    return " ".join(sign_message(secret, message, at_s, body) for secret in secrets)
