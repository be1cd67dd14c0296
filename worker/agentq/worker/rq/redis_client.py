"""A redis-py client for RQ at the address in agentq's settings.

RQ's keys have no hash tags, and a job moves between them and agentq's in one script; so both must be on one server, and
in one database. A cluster cannot promise that.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any
from urllib.parse import quote

import redis
from redis import Connection, ConnectionPool, Redis, SSLConnection, UnixDomainSocketConnection
from redis.backoff import ExponentialBackoff
from redis.retry import Retry
from redis.sentinel import Sentinel

from agentq.coordinator.config.settings import Settings
from agentq.coordinator.errors import Invalid
from agentq.coordinator.storage.keys import Keyspace
from agentq.coordinator.storage.store import NamespaceStore
from agentq.coordinator.storage.url import ServerAddress, parse_url

RQ_PARTITION = 0
"""The partition of all RQ jobs: their keys are on one server anyway."""
RETRIES = 8
TLS_OPTIONS = ("ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile", "ssl_password")
CLUSTER_REFUSAL = (
    "RQ's jobs cannot be adopted on a Redis Cluster: RQ's keys have no hash tags, so that a job cannot be moved "
    "between them in one step. Point AGENTQ_URL at a single server or at Sentinel."
)


def check_address(url: str) -> ServerAddress:
    """The address; refused if RQ's keys and agentq's could be on two servers."""
    address = parse_url(url)
    if address.shape == "cluster":
        raise Invalid(CLUSTER_REFUSAL)
    return address


def create_client(url: str) -> Redis:
    """A client as RQ expects it, with bytes in and out. Each process has its own connections."""
    return Redis(connection_pool=get_connection_pool(url, os.getpid()))


@cache
def get_connection_pool(url: str, _process: int) -> ConnectionPool:
    """The connections of a process."""
    address = check_address(url)
    again: dict[str, Any] = {
        "retry": Retry(ExponentialBackoff(cap=1, base=0.05), RETRIES),
        "retry_on_error": [redis.ConnectionError, redis.TimeoutError],
    }
    options: dict[str, Any] = {**address.options, **again}
    if address.shape == "sentinel":
        secure = {"ssl": True} if address.tls else {}
        sentinel_options: dict[str, Any] = {**address.sentinel_options, **secure}
        sentinel = Sentinel(list(address.places), sentinel_kwargs=sentinel_options, **options, **secure)  # type: ignore[no-untyped-call]
        pool: ConnectionPool = sentinel.master_for(address.service).connection_pool  # type: ignore[no-untyped-call]
        return pool
    ((host, port),) = address.places
    if not port:
        return ConnectionPool(connection_class=UnixDomainSocketConnection, path=host, **options)
    if address.tls:
        options["connection_class"] = SSLConnection
    return ConnectionPool(host=host, port=port, **options)


def build_client_url(client: Redis) -> str:
    """The address of a foreign client, as agentq writes it."""
    pool = getattr(client, "connection_pool", None)
    if pool is None:
        raise Invalid(CLUSTER_REFUSAL)
    options: dict[str, Any] = pool.connection_kwargs
    user, password = (quote(str(options.get(name) or ""), safe="") for name in ("username", "password"))
    place = f"{user}:{password}@" if password else ""
    database = int(options.get("db") or 0)
    if issubclass(pool.connection_class, UnixDomainSocketConnection):
        more = f"&password={password}" + (f"&username={user}" if user else "") if password else ""
        return f"unix://{quote(options['path'])}?db={database}{more}"
    if pool.connection_class in (Connection, SSLConnection):
        secure = pool.connection_class is SSLConnection
        known = ((name, options.get(name)) for name in TLS_OPTIONS) if secure else ()
        query = "&".join(f"{name}={quote(str(value))}" for name, value in known if value not in (None, "none"))
        host = options.get("host", "localhost")
        host = f"[{host}]" if ":" in host else host
        scheme = "rediss" if secure else "redis"
        return f"{scheme}://{place}{host}:{options.get('port', 6379)}/{database}{'?' + query if query else ''}"
    url = Settings.from_environment().url
    if not url:
        raise Invalid(
            "This kind of connection cannot be told as an address; set AGENTQ_URL to that of the same server."
        )
    check_address(url)
    return url


@cache
def _open_store(url: str, namespace: str, partitions: int, _process: int) -> NamespaceStore:
    from agentq.coordinator.storage.connection import Connection as StoreConnection

    return NamespaceStore(StoreConnection(url, client_name="agentq-rq"), Keyspace(namespace, partitions))


def open_store_beside(client: Redis, settings: Settings) -> NamespaceStore:
    """agentq's keys on the server of a foreign client."""
    return _open_store(build_client_url(client), settings.namespace, settings.partitions, os.getpid())
