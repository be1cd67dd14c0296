"""Parses the URL of the server.

    redis://[user:password@]host[:6379][/db]                      one server; rediss:// with TLS
    unix:///path/to/socket[?db=0]                                 one server on this machine
    redis+sentinel://[user:password@]h1:26379,h2:26379/service[/db][?sentinel_password=...]
    redis+cluster://h1:7000,h2:7001                               also redis://h1:7000?cluster=true

`valkey` may stand for `redis` anywhere. TLS is set by `ssl_*` options. A URL is checked in full before anything is
connected, and no message ever repeats the part of it that may hold a password.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qsl, unquote

from agentq.coordinator.errors import Invalid
from agentq.coordinator.storage.socket_link import Endpoint, SocketLink, open_link


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """A URL, understood."""

    shape: Literal["single", "sentinel", "cluster"]
    places: tuple[Endpoint, ...]
    tls: bool = False
    service: str = ""
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    sentinel_options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        """What may be shown: no user, no password, no options."""
        if not self.places[0][1]:
            return f"unix://{self.places[0][0]}"
        scheme = ("rediss" if self.tls else "redis") + ("" if self.shape == "single" else f"+{self.shape}")
        hosts = ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.places)
        path = [self.service] * (self.shape == "sentinel") + [str(self.options["db"])] * (self.shape != "cluster")
        return "/".join([f"{scheme}://{hosts}", *path])

    def link(self, place: Endpoint, *, client_name: str, timeout_ms: int) -> SocketLink:
        """A link to one server of this address, not yet connected."""
        return open_link(place, self.options, tls=self.tls, client_name=client_name, timeout_ms=timeout_ms)

    def sentinel_link(self, place: Endpoint, *, client_name: str, timeout_ms: int) -> SocketLink:
        """A link to one of the sentinels, which have a user and password of their own."""
        return open_link(place, self.sentinel_options, tls=self.tls, client_name=client_name, timeout_ms=timeout_ms)


def redact_url(url: str) -> str:
    """The URL without anything secret in it, whether it is valid or not."""
    try:
        return str(parse_url(url))
    except Invalid:
        return re.sub(r"//.*@", "//", url.strip(), flags=re.DOTALL).partition("?")[0]


def is_coordinator_url(url: str) -> bool:
    """Whether a URL is that of a coordinator, which stands before a server."""
    return url.strip().startswith(("http://", "https://"))


@lru_cache(maxsize=1024)
def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def parse_url(url: str) -> ServerAddress:
    """Parse a URL; raises `Invalid` with one sentence."""
    match = URL_PATTERN.fullmatch(url.strip())
    if is_coordinator_url(url):
        raise _invalid_url(
            "it must begin with redis://, and this is a coordinator's; the Redis behind it is needed here"
        )
    if match is None:
        raise _invalid_url("it must begin with redis://, rediss://, unix://, redis+sentinel:// or redis+cluster://")
    if "#" in url:
        raise _invalid_url("it must not contain # (in a password, write %23)")
    userinfo, _, hosts = match["place"].rpartition("@")
    path, query = match["path"].strip("/"), _parse_query(match["query"] or "")
    options = _pop_credentials(userinfo, query)
    tls = match["tls"] == "s"
    shape = "cluster" if _pop_boolean(query, "cluster", match["shape"] == "cluster") else match["shape"] or "single"
    database = path
    if match["scheme"] == "unix":
        if hosts or not path:
            raise _invalid_url("a path stands after three slashes", "unix:///run/redis.sock")
        address, database = ServerAddress("single", ((unquote(match["path"]), 0),)), ""
    elif shape == "sentinel":
        service, _, database = path.partition("/")
        if not service:
            raise _invalid_url(
                "name the service that the sentinels watch", "redis+sentinel://host1:26379,host2:26379/mymaster"
            )
        address = ServerAddress("sentinel", _parse_hosts(hosts, 26379), tls, unquote(service))
    else:
        address = ServerAddress("cluster" if shape == "cluster" else "single", _parse_hosts(hosts, 6379), tls)
        if shape == "single" and len(address.places) > 1:
            raise _invalid_url("several hosts need redis+sentinel:// or redis+cluster://")
    options["db"] = _parse_number(query.pop("db", database) or "0", "the database")
    secure = _pop_tls_options(query, tls)
    sentinel = {name: query.pop(f"sentinel_{name}") for name in ("username", "password") if f"sentinel_{name}" in query}
    if query:
        # After an unescaped ? in a password, what looks like an option is a piece of it, so it is not repeated.
        name = repr(min(query)) if min(query).isidentifier() else "in it"
        raise _invalid_url(f"the option {name} is not known; known are {', '.join(KNOWN_OPTIONS)}")
    return replace(address, options=options | secure, sentinel_options=sentinel | secure)


URL_PATTERN = re.compile(
    r"(?:(?P<scheme>unix)|(?:redis|valkey)(?P<tls>s?)(?:\+(?P<shape>sentinel|cluster))?)"
    r"://(?P<place>[^/?]*)(?P<path>[^?]*)(?:\?(?P<query>.*))?",
    re.DOTALL,
)
TLS_FILE_OPTIONS = ("ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile")
TLS_VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
BOOLEAN_VALUES = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
KNOWN_OPTIONS = (
    *("db", "cluster", "username", "password", "sentinel_username", "sentinel_password"),
    *(*TLS_FILE_OPTIONS, "ssl_password", "ssl_cert_reqs", "ssl_check_hostname", "ssl_min_version", "ssl_ciphers"),
)


def _parse_query(text: str) -> dict[str, str]:
    pairs = parse_qsl(text, keep_blank_values=True)
    query = dict(pairs)
    if len(query) < len(pairs):
        raise _invalid_url("an option is given twice")
    return query


def _pop_boolean(query: dict[str, Any], name: str, default: bool) -> bool:
    text = str(query.pop(name, default)).lower()
    if text not in BOOLEAN_VALUES:
        raise _invalid_url(f"{name} is true or false")
    return BOOLEAN_VALUES[text]


def _pop_credentials(userinfo: str, query: dict[str, str]) -> dict[str, Any]:
    user, _, password = userinfo.partition(":")
    found = {
        "username": unquote(user) or query.pop("username", ""),
        "password": unquote(password) or query.pop("password", ""),
    }
    return {name: value for name, value in found.items() if value}


def _parse_hosts(hosts: str, port: int) -> tuple[Endpoint, ...]:
    return tuple(_parse_host(host, port) for host in hosts.split(","))


def _parse_host(text: str, default: int) -> Endpoint:
    match = re.fullmatch(r"(?:\[(?P<six>[0-9a-fA-F:.%]+)\]|(?P<name>[^\[\]:@\s]*))(?::(?P<port>\d+))?", text)
    if match is None:
        # What could not be read may be a piece of a password, so it is not repeated.
        raise _invalid_url(
            "a host or a port cannot be read; in a password, write / ? # @ and : as %2F %3F %23 %40 and %3A"
        )
    port = int(match["port"] or default)
    if not 0 < port < 65536:
        raise _invalid_url("a port lies between 1 and 65535")
    return match["six"] or unquote(match["name"]) or "localhost", port


def _pop_tls_options(query: dict[str, str], tls: bool) -> dict[str, Any]:
    found: dict[str, Any] = {
        name: query.pop(name) for name in list(query) if name in KNOWN_OPTIONS and name.startswith("ssl_")
    }
    if found and not tls:
        raise _invalid_url(f"the option {min(found)!r} needs rediss://")
    for name in TLS_FILE_OPTIONS:
        if name in found and not Path(found[name]).exists():
            raise _invalid_url(f"{name} names {found[name]}, which does not exist")
    if found.get("ssl_cert_reqs", "required") not in ("none", "optional", "required"):
        raise _invalid_url("ssl_cert_reqs is none, optional or required")
    if "ssl_min_version" in found:
        if found["ssl_min_version"] not in TLS_VERSIONS:
            raise _invalid_url("ssl_min_version is 1.2 or 1.3")
        found["ssl_min_version"] = TLS_VERSIONS[found["ssl_min_version"]]
    if tls:
        found["ssl_check_hostname"] = _pop_boolean(found, "ssl_check_hostname", True)
    return found


def _parse_number(text: str, what: str) -> int:
    if not re.fullmatch(r"\d{1,4}", text):
        raise _invalid_url(f"{what} is a number")
    return int(text)


def _invalid_url(problem: str, example: str = "redis://:password@127.0.0.1:6379/0") -> Invalid:
    return Invalid(f"The address of the server is not valid: {problem}, for example {example}")
