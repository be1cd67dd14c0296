"""The client of a program, and the default one through which tasks submit.

It may stand at the top of a module: it connects when it is first used. Its calls are done in the calling thread; `aio`
does the same for an event loop.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from agentq.coordinator.config.settings import DEFAULT_SOURCE, Settings, is_server_hidden, load_settings
from agentq.coordinator.errors import Invalid, NotAllowed
from agentq.coordinator.runs.verbs import RunVerbs
from agentq.coordinator.storage.embedded import EmbeddedServer, data_folder
from agentq.coordinator.storage.url import is_coordinator_url
from agentq.sdk.blocking_client import BlockingClient
from agentq.sdk.redis_backend import RedisBackend

if TYPE_CHECKING:
    from agentq.sdk.async_client import AsyncClient
    from agentq.sdk.backend import Backend


class Client(BlockingClient):
    """One namespace: submits functions, finds runs, and sets what stands beside them."""

    @cached_property
    def aio(self) -> AsyncClient:
        """The same client, for event loops."""
        from agentq.sdk.async_client import AsyncClient

        return AsyncClient(self)


def connect(
    url: str | None = None,
    *,
    namespace: str | None = None,
    partitions: int | None = None,
    token: str | Path | None = None,
) -> Client:
    """A client of a server: the one named, that of the settings (`AGENTQ_URL`, the user's file), or the one that agentq
    brings, which is started when the client is first used.

    The address of a coordinator begins with https://. It may ask for a token, as text or as the path of a file; without
    one, that of `AGENTQ_TOKEN` or in the file that `AGENTQ_TOKEN_FILE` names, or on loopback that of this machine.
    """
    flags = {"url": url, "namespace": namespace, "partitions": None if partitions is None else str(partitions)}
    return Client(lambda: _open_backend(flags, token))


def connect_async(
    url: str | None = None,
    *,
    namespace: str | None = None,
    partitions: int | None = None,
    token: str | Path | None = None,
) -> AsyncClient:
    """A client for event loops; it can be made outside of one, and connects when it is first used."""
    return connect(url, namespace=namespace, partitions=partitions, token=token).aio


def _open_backend(flags: Mapping[str, str | None], token: str | Path | None) -> Backend:
    found = load_settings(flags)
    settings = found.settings
    for each in found.ignored if found.sources["url"] == DEFAULT_SOURCE else ():
        if each.name in ("", "url"):
            warnings.warn(f"{each.name or 'All'} in {each.source} does not count: {each.why}.", stacklevel=2)
    if not is_coordinator_url(settings.url):
        if token is not None:
            raise Invalid("A token works only with a coordinator; give its address, which begins with https://.")
        settings = _with_url(settings)
        return RedisBackend(RunVerbs.open(settings, client_name="agentq-sdk"), settings)
    if flags["namespace"] is not None or flags["partitions"] is not None:
        raise Invalid("A coordinator serves one namespace, and knows its partitions; leave both out.")
    from agentq.sdk.http_backend import HttpBackend

    return HttpBackend(settings.url.strip(), token, home=settings.home)


def _with_url(settings: Settings) -> Settings:
    if settings.url:
        return settings
    if is_server_hidden():
        raise NotAllowed("This run knows no server: its worker's server_queues decide which queues' functions do.")
    return settings.model_copy(update={"url": EmbeddedServer(data_folder(settings.home) / "server").start()})


def default_client() -> Client:
    """The client that tasks submit through: as the settings say, unless `set_default_client` said otherwise."""
    global _default
    if _default is None:
        _default = connect()
    return _default


def set_default_client(client: Client | None) -> Client | None:
    """Have tasks submit through this client from now on, or with None through one as the settings say; returns the one
    before."""
    global _default
    before, _default = _default, client
    return before


_default: Client | None = None
