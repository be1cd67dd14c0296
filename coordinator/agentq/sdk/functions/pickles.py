"""Signed pickles: for tasks that ask for them, with keys that both sides have. Unsigned pickles are not opened.

`AGENTQ_PICKLE_KEY` holds one or more keys of at least 32 bytes, separated by commas: the first signs, any of them
opens, so that a key can be changed while runs are under way. The signature covers the path of the function, so that a
pickle made for one function cannot be handed to another.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import os
import pickle
from typing import Any

from agentq.coordinator.bounds import PICKLE_KEY_BYTES_MIN
from agentq.coordinator.errors import Invalid, NotAllowed
from agentq.sdk.functions.references import PICKLE_KEYS

KEY_VARIABLE = "AGENTQ_PICKLE_KEY"


def sign_pickle(value: Any, path: str) -> str:
    """The JSON text of a signed pickle."""
    key = _read_keys(path)[0]
    try:
        body = pickle.dumps(value, protocol=5)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise Invalid(f"A value sent to or from {path} cannot be pickled: {error}.") from error
    return json.dumps({"$pickle": base64.b64encode(body).decode(), "hmac": _compute_signature(key, path, body)})


def is_signed_pickle(text: str) -> bool:
    """Whether it is the text of a pickle, which never begins otherwise."""
    return text.startswith('{"$pickle"') and set(_parse_record(text)) == PICKLE_KEYS


def _parse_record(text: str) -> dict[str, Any]:
    """What stands in a text; nothing where that is no record, or one within more others than can be read."""
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def load_signed_pickle(text: str, path: str) -> Any:
    """The value of a signed pickle. Nothing is unpickled before its signature was found right."""
    keys = _read_keys(path)
    try:
        record = _parse_record(text)
        body, signature = (
            base64.b64decode(record["$pickle"], validate=True),
            str(record["hmac"]).encode(errors="surrogatepass"),
        )
    except (ValueError, KeyError, TypeError, binascii.Error) as error:
        raise Invalid(f"What came for {path} is not a signed pickle.") from error
    # All keys are tried, so that the time tells nothing of which one fits.
    matches = [hmac.compare_digest(_compute_signature(key, path, body).encode(), signature) for key in keys]
    if not any(matches):
        raise NotAllowed(f"The pickle for {path} has no signature by a key of {KEY_VARIABLE}; it was not opened.")
    return pickle.loads(body)


def _compute_signature(key: bytes, path: str, body: bytes) -> str:
    return hmac.new(key, path.encode() + b"\0" + body, hashlib.sha256).hexdigest()


def _read_keys(path: str) -> list[bytes]:
    keys = [key.strip().encode() for key in os.environ.get(KEY_VARIABLE, "").split(",") if key.strip()]
    if not keys:
        raise NotAllowed(
            f"{path} asks for pickles, which need {KEY_VARIABLE} here and at the workers: a secret of "
            f"{PICKLE_KEY_BYTES_MIN} bytes or more, the same for both."
        )
    if any(len(key) < PICKLE_KEY_BYTES_MIN for key in keys):
        raise NotAllowed(f"A key in {KEY_VARIABLE} has fewer than {PICKLE_KEY_BYTES_MIN} bytes; make it longer.")
    return keys
