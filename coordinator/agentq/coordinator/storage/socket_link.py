"""One socket to one server: connecting, sending a command, reading its reply.

Here redis-py connects, authenticates and parses. Everything above it (pools, retries, response callbacks, Sentinel and
Cluster clients) is left aside: its retries are not ours to bound, and its callbacks reshape replies. And so are its
timeouts, but for TLS: the kernel's do without asking before each read and write whether it can be done, which is two
more calls of the system for each command, each of which lets another thread of this process go first.
"""

from __future__ import annotations

import json
import re
import socket
import ssl
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, cast

import hiredis
import redis
from redis.backoff import NoBackoff
from redis.exceptions import ResponseError
from redis.retry import Retry

from agentq.coordinator.storage.server_errors import NoTls

CommandArgument = str | bytes | int | float

Endpoint = tuple[str, int]
"""Where one server listens: host and port, or the path of a socket and 0."""


CommandSender = Callable[[tuple[CommandArgument, ...]], Any]
"""Sends one command and returns its reply."""


class SocketLink(Protocol):
    """The part of redis-py's connection that is used."""

    pid: int
    _sock: Any

    def allow(self, seconds: float) -> None: ...
    def connect(self) -> None: ...
    def disconnect(self) -> None: ...
    def send_packed_command(self, command: list[bytes], check_health: bool = True) -> None: ...
    def read_response(self) -> Any: ...


def send_and_read(link: SocketLink, words: tuple[CommandArgument, ...]) -> Any:
    """Send one command and read its reply."""
    send_commands(link, words)
    return link.read_response()


def send_all_and_read(link: SocketLink, commands: Sequence[tuple[CommandArgument, ...]]) -> list[Any]:
    """Send several commands at once and read their replies; the first that is refused is raised after that."""
    send_commands(link, *commands)
    replies = [_read_reply(link) for _ in commands]
    refused = next((reply for reply in replies if isinstance(reply, ResponseError)), None)
    if refused is not None:
        raise refused
    return replies


def _read_reply(link: SocketLink) -> Any:
    try:
        return link.read_response()
    except ResponseError as refusal:
        return refusal


def pairs_to_dict(flat: list[Any]) -> dict[Any, Any]:
    """The fields of a hash, an entry or a map, which servers tell as one flat list of names and values."""
    return dict(zip(flat[::2], flat[1::2], strict=True))


def parse_script_json(text: str) -> Any:
    """What a script tells as JSON. Bytes in it that are no text are shown as `\\xNN`, which JSON does not know."""
    try:
        return json.loads(text)
    except ValueError:
        return json.loads(_SHOWN_BYTE.sub(r"\1\\\\x", text))


_SHOWN_BYTE = re.compile(r"(?<!\\)((?:\\\\)*)\\x")


def send_asking(link: SocketLink, words: tuple[CommandArgument, ...]) -> Any:
    """Send one command to the node of a cluster that is about to get the slot, as another node told us to."""
    send_and_read(link, ("ASKING",))
    return send_and_read(link, words)


def send_commands(link: SocketLink, *commands: tuple[CommandArgument, ...]) -> None:
    """Send one command, or several at once, connecting first if need be."""
    link.send_packed_command([b"".join(map(_pack_command, commands))], check_health=False)


# The stubs of hiredis speak of a tuple of one word.
_pack_command = cast(Callable[[tuple[CommandArgument, ...]], bytes], hiredis.pack_command)

# A peer that vanished without a word (power, a dropped NAT entry) is noticed after half a minute.
KEEPALIVE_OPTIONS = {
    getattr(socket, name): value
    for name, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))
    if hasattr(socket, name)
}

# Telling the server the library's name and version takes two more round trips for each connection.
NO_CLIENT_INFO = {"driver_info": None} if hasattr(redis, "DriverInfo") else {"lib_name": None, "lib_version": None}

COMMON_OPTIONS: Mapping[str, Any] = {
    # Version 3 of the protocol answers some commands with maps, and servers differ in which; version 2 has only lists,
    # in the same shape on every server, which is also how Lua sees them.
    "protocol": 2,
    "decode_responses": True,
    # What agentq writes is always text. If someone else wrote something else, reading must still work.
    "encoding_errors": "backslashreplace",
    # redis-py would send again by itself, silently. Retries are made in `connection`, and nowhere else.
    "retry": Retry(NoBackoff(), 0),
    **NO_CLIENT_INFO,
}


class _TimeoutLink:
    """What the links of all kinds have beside redis-py's."""

    _sock: Any

    def allow(self, seconds: float) -> None:
        """How long a reply may take from now on."""
        self._sock.settimeout(seconds)


NOT_TLS_REASONS = {"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"}
"""What OpenSSL calls an answer that is no TLS at all."""

_TIMEVAL_FORMAT = "qq" if socket.SO_RCVTIMEO == 66 else "ll"
"""How the kernel is told a time; 66 is the option of machines of 32 bits that count time in 64."""


class _KernelTimeoutLink(_TimeoutLink):
    """Each read and each write has its time."""

    def allow(self, seconds: float) -> None:
        _set_socket_timeout(self._sock, socket.SO_RCVTIMEO, seconds)

    def _connect(self) -> socket.socket:
        made: socket.socket = super()._connect()  # type: ignore[misc]
        made.settimeout(None)
        for what in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            _set_socket_timeout(made, what, self.socket_timeout)  # type: ignore[attr-defined]
        return made

    def send_packed_command(self, command: list[bytes], check_health: bool = True) -> None:
        try:
            super().send_packed_command(command, check_health)  # type: ignore[misc]
        except redis.ConnectionError as fault:
            _raise_if_timeout(fault)
            raise

    def read_response(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().read_response(*args, **kwargs)  # type: ignore[misc]
        except redis.ConnectionError as fault:
            _raise_if_timeout(fault)
            raise


def _set_socket_timeout(made: socket.socket, what: int, seconds: float) -> None:
    whole = int(seconds)
    made.setsockopt(socket.SOL_SOCKET, what, struct.pack(_TIMEVAL_FORMAT, whole, max(1, int((seconds - whole) * 1e6))))


def _raise_if_timeout(fault: redis.ConnectionError) -> None:
    """What has taken longer than the kernel allows would have blocked, as the system says; redis-py expects it not."""
    if isinstance(fault.__context__, BlockingIOError):
        raise redis.TimeoutError("no reply in time") from fault


class _TcpLink(_KernelTimeoutLink, redis.Connection): ...


class _UnixLink(_KernelTimeoutLink, redis.UnixDomainSocketConnection): ...


class _TlsLink(_TimeoutLink, redis.SSLConnection):
    def _wrap_socket_with_ssl(self, sock: socket.socket) -> ssl.SSLSocket:
        try:
            wrapped: ssl.SSLSocket = super()._wrap_socket_with_ssl(sock)  # type: ignore[no-untyped-call]
        except TimeoutError as fault:
            raise NoTls("no reply to the handshake") from fault
        except ssl.SSLError as fault:
            if fault.reason in NOT_TLS_REASONS:
                raise NoTls(fault.reason.lower().replace("_", " ")) from fault
            raise
        return wrapped


def open_link(
    place: Endpoint, options: Mapping[str, Any], *, tls: bool, client_name: str, timeout_ms: int
) -> SocketLink:
    """A link that connects when the first command is sent."""
    host, port = place
    kind: Callable[..., Any] = _TlsLink if tls else _TcpLink
    where: dict[str, Any] = {
        "host": host,
        "port": port,
        "socket_keepalive": True,
        "socket_keepalive_options": KEEPALIVE_OPTIONS,
    }
    if not port:
        kind = _UnixLink
        where = {"path": host}
    timeouts = {"socket_timeout": timeout_ms / 1000, "socket_connect_timeout": timeout_ms / 1000}
    return cast(SocketLink, kind(**where, **timeouts, **COMMON_OPTIONS, **options, client_name=client_name))


def open_link_like(client: redis.Redis) -> SocketLink:
    """A link of the kind that a client makes, such as one to a fake server in the tests."""
    pool = client.connection_pool
    return cast(SocketLink, pool.connection_class(**{**pool.connection_kwargs, **COMMON_OPTIONS}))
