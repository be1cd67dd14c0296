"""Where large results go: a store beside the server, with a reference in the result's place.

The setting `AGENTQ_RESULTS` names the store by its URL, for the workers, which write, and for those who read. Without
one a result may have as many bytes as the server takes. The built-in store is a folder, `file:///path`, which every
machine must see under that path; `register_store` adds others. A reference names its bytes by their SHA-256, which is
checked.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Protocol
from urllib.parse import unquote, urlsplit

from pydantic_core import to_json

from agentq.coordinator import bounds
from agentq.coordinator.config.settings import load_settings
from agentq.coordinator.errors import AgentqError, Invalid, NotFound
from agentq.sdk.functions.references import STORED_KEYS

STORE_VARIABLE = "AGENTQ_RESULTS"


class Store(Protocol):
    """Bytes by name. A name is 64 hexadecimal digits; equal names have equal bytes."""

    def put(self, name: str, body: bytes) -> None: ...

    def get(self, name: str) -> bytes:
        """The bytes; KeyError if they are gone."""

    def delete(self, name: str) -> None: ...


StoreFactory = Callable[[str], Store]

_factories: dict[str, StoreFactory] = {}
_open_stores: dict[str, Store] = {}


def register_store(scheme: str, factory: StoreFactory) -> None:
    """Let `AGENTQ_RESULTS` name stores of another kind; the factory gets the whole URL."""
    _factories[scheme] = factory


def store_result(body: bytes) -> bytes:
    """The text of a result as the run carries it: itself, or a reference to where it was put."""
    if len(body) <= bounds.RESULT_INLINE_BYTES:
        return body
    url = load_settings({}).settings.results
    if not url:
        if len(body) > bounds.RESULT_BYTES:
            raise Invalid(
                f"The result has {len(body)} bytes, and the server keeps {bounds.RESULT_BYTES} at the most; "
                f"set {STORE_VARIABLE} to a store, such as file:///var/lib/results."
            )
        return body
    digest = hashlib.sha256(body).hexdigest()
    _open_store(url).put(digest, body)
    return to_json({"$ref": f"{urlsplit(url).scheme}:{digest}", "bytes": len(body), "sha256": digest})


def load_result(text: bytes) -> bytes:
    """The result that a run's text is, or refers to."""
    if not text.startswith(b'{"$ref"'):
        return text
    reference = json.loads(text)
    if set(reference) != STORED_KEYS:
        return text
    scheme, _, name = str(reference["$ref"]).partition(":")
    url = load_settings({}).settings.results
    if urlsplit(url).scheme != scheme:
        raise Invalid(f"The result is in a store of the kind {scheme!r}; set {STORE_VARIABLE} to it as at the workers.")
    if len(name) != 64 or not set(name) <= set("0123456789abcdef"):
        raise Invalid(f"{name[:80]!r} is not the name of a stored result.")
    try:
        body = _open_store(url).get(name)
    except KeyError as error:
        raise NotFound(
            f"The result {name[:12]}… is not in {url} any more, or {url} is not where it was put."
        ) from error
    if hashlib.sha256(body).hexdigest() != name:
        raise AgentqError(f"The result {name[:12]}… in {url} is damaged: its digest is another one.")
    return body


def _open_store(url: str) -> Store:
    store = _open_stores.get(url)
    if store is None:
        scheme = urlsplit(url).scheme
        if scheme not in _factories:
            raise Invalid(
                f"{STORE_VARIABLE} names a store of the kind {scheme!r}; there are {', '.join(sorted(_factories))}."
            )
        store = _open_stores[url] = _factories[scheme](url)
    return store


def _open_folder_store(url: str) -> Store:
    from pathlib import Path

    from agentq.sdk.functions.folder_store import Folder

    return Folder(Path(unquote(urlsplit(url).path)))


register_store("file", _open_folder_store)
