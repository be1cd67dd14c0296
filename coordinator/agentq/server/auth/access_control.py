"""Authenticates clients by bearer tokens, and checks scopes and rate limits.

A token is sent in `Authorization: Bearer aq_…` and nowhere else, since addresses end up in logs. Each use is checked
and counted by one script, which once a minute also records it; so a revoked token is refused at once, by every server.
A server on loopback also accepts the token of this machine (`local_token.py`), and needs none on its unix socket, which
only its user reaches.

A route declares its scope: `Annotated[Principal, require_scope("read")]`. A token that is limited to some queues can
use only routes declared with `by_queue`, which check the queue of what they touch. A token that is bound to a runner or
worker can use only routes declared with `bound`, which check the owner. All other routes refuse these tokens.
"""

from __future__ import annotations

import hmac
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from fastapi import Depends
from starlette.requests import HTTPConnection

from agentq.coordinator.clock import monotonic_ms
from agentq.coordinator.config.server_settings import ServerSettings
from agentq.coordinator.errors import Invalid, TryLater, Unreachable
from agentq.coordinator.security.tokens import (
    HOME_PARTITION,
    PresentedToken,
    RequestRate,
    TokenScope,
    hash_secret,
    parse_rate,
    parse_token,
)
from agentq.coordinator.storage.store import NamespaceStore
from agentq.coordinator.storage.url import is_loopback
from agentq.coordinator.token_context import set_current_token
from agentq.server.auth.guess_limit import GuessLimit
from agentq.server.batching import Batcher
from agentq.server.http.problems import Denied, TooMany
from agentq.server.thread_pool import CallInThread

PRINCIPAL_KEY = "looked_at"
"""The key in the request state of a principal that was authenticated before the body was read."""
RECHECK_INTERVAL_MS = 5_000
"""How often the token of a stream is checked again."""
KNOWN_TOKENS_MAX = 10_000
"""Tokens remembered as valid, which do not count as guesses."""
FILE_TOKEN_LENGTH_MIN = 32
BATCH_SIZE_MAX = 500
PROXY_HEADERS = (b"x-forwarded-", b"forwarded", b"x-real-ip", b"via", b"cf-connecting-ip", b"true-client-ip")
"""Prefixes of the headers that proxies add."""


@dataclass(frozen=True, slots=True)
class Principal:
    """The authenticated client."""

    token: str | None
    """The id of its token; None without one."""
    name: str
    scopes: frozenset[TokenScope]
    queues: tuple[str, ...] = ()
    """The only queues that it may use; all if empty."""
    bound: str | None = None
    """The id of its token if that is bound to a runner or worker: it may act only for what was registered with it."""

    def has_scope(self, scope: TokenScope) -> bool:
        return scope in self.scopes or TokenScope.ADMIN in self.scopes

    def check_queue(self, queue: str) -> None:
        """Refuse a queue that the token is not for."""
        if self.queues and queue not in self.queues:
            raise Denied(f"This token is for the queues {', '.join(self.queues)}, not for {queue}.")

    def owns(self, owner: str | None) -> bool:
        """Whether the client may act for what was registered with a token of this id, or without one."""
        return self.bound is None or self.bound == (owner or "")


ANONYMOUS_ADMIN = Principal(None, "somebody on this machine", frozenset(TokenScope))
ANONYMOUS_RUNNER = Principal(None, "a runner on this machine", frozenset({TokenScope.WORK}), bound="open")
"""A runner without a token: it may act for what was registered without one."""
TOKEN_REQUIRED = (
    "This needs a token: Authorization: Bearer aq_…; `agentq token show` tells that of this machine, and `agentq token "
    "new` makes others."
)

RUNNERS_ONLY_HINT = (
    "This needs a token: Authorization: Bearer aq_…, which `agentq token show` tells. Without one --open-runners lets "
    "runners in, and no clients; for clients that cannot send a token, start the server with --no-token."
)


class TokenCheck(NamedTuple):
    """The script's reply about a token."""

    name: str
    kind: str
    digest: str
    scopes: str
    queues: str
    expired: str
    wait_ms: int | str


class AccessControl:
    """Authenticates the clients of one server."""

    def __init__(
        self,
        store: NamespaceStore,
        call_in_thread: CallInThread,
        settings: ServerSettings,
        *,
        open_to_all: bool = False,
        local: str = "",
    ) -> None:
        self._store, self._call_in_thread = store, call_in_thread
        self._open_to_all = open_to_all
        self._open_to_loopback = is_loopback(settings.host) and not settings.require_tokens
        self._open_runners = is_loopback(settings.host) and settings.open_runners
        self._rate: RequestRate | None = parse_rate(settings.rate) if settings.rate else None
        admin = frozenset({TokenScope.ADMIN})
        self._file_principals = dict.fromkeys(
            read_token_file(settings.token_file), Principal("file", "the token file", admin)
        )
        if local:
            self._file_principals[hash_secret(local)] = Principal("local", "the token of this machine", admin)
        self._good_tokens: OrderedDict[str, str] = OrderedDict()
        self._guess_limit = GuessLimit()
        self._check_batched: Batcher[PresentedToken, TokenCheck] = Batcher(self._check_tokens, items_max=BATCH_SIZE_MAX)

    async def authenticate(self, connection: HTTPConnection) -> Principal:
        """The principal of a request. Refuses an invalid token, and a request that lacks a required one."""
        found = await self._find_principal(connection)
        set_current_token(found.token or "", *found.queues)
        return found

    async def _find_principal(self, connection: HTTPConnection) -> Principal:
        scheme, _, text = connection.headers.get("authorization", "").partition(" ")
        if not scheme:
            return self._find_anonymous(connection)
        if scheme.lower() != "bearer":
            raise Denied("A token is shown as Authorization: Bearer aq_….", status=401)
        of_file = self._find_in_file(text.strip())
        if of_file is not None:
            return of_file
        presented = parse_token(text.strip())
        if presented is None:
            raise Denied("This is not a token of agentq; it may have been cut off.", status=401)
        return await self._find_by_token(presented, connection.client.host if connection.client else "")

    def _find_anonymous(self, connection: HTTPConnection) -> Principal:
        """The principal of a request without a token, if it needs none."""
        is_here = _is_local(connection)
        if self._open_to_all or (is_here and (self._open_to_loopback or _is_unix_socket(connection))):
            return ANONYMOUS_ADMIN
        if is_here and self._open_runners:
            return ANONYMOUS_RUNNER
        raise Denied(TOKEN_REQUIRED, status=401)

    async def _find_by_token(self, presented: PresentedToken, address: str) -> Principal:
        is_known = self._good_tokens.get(presented.id) == presented.digest
        if not is_known:
            self._guess_limit.take(address)
        try:
            found = await self._check_batched(presented)
        except (TryLater, Unreachable):
            if not is_known:
                self._guess_limit.give_back(address)
            raise
        if not hmac.compare_digest(found.digest, presented.digest) or found.kind != presented.kind:
            self._good_tokens.pop(presented.id, None)
            raise Denied("This token is unknown; it may have been revoked.", status=401)
        if found.expired:
            self._good_tokens.pop(presented.id, None)
            raise Denied("This token has expired; `agentq token new` makes another.", status=401)
        if not is_known:
            self._guess_limit.give_back(address)
        self._good_tokens[presented.id] = presented.digest
        self._good_tokens.move_to_end(presented.id)
        if len(self._good_tokens) > KNOWN_TOKENS_MAX:
            self._good_tokens.popitem(last=False)
        if found.wait_ms:
            raise TooMany(int(found.wait_ms))
        scope_names = found.scopes.split()
        scopes, bound = (
            frozenset(each for each in TokenScope if each in scope_names),
            None if found.kind == "client" else presented.id,
        )
        return Principal(presented.id, found.name, scopes, tuple(found.queues.split()), bound)

    def _find_in_file(self, text: str) -> Principal | None:
        digest_shown = hash_secret(text)
        good = [
            principal
            for digest, principal in self._file_principals.items()
            if hmac.compare_digest(digest_shown, digest)
        ]
        return good[0] if good else None

    async def _check_tokens(self, tokens: list[PresentedToken]) -> list[TokenCheck]:
        rate = self._rate or ("", "", "")
        rows = [word for each in tokens for word in (each.id, each.digest)]
        flat = await self._call_in_thread(self._store.call, "token/check", HOME_PARTITION, *rate, *rows)
        width = len(TokenCheck._fields)
        return [TokenCheck(*flat[at : at + width]) for at in range(0, len(flat), width)]


def get_access(connection: HTTPConnection) -> AccessControl:
    """The access control of the server that received a request."""
    access: AccessControl = connection.app.state.service.access
    return access


class TokenRecheck:
    """Checks the token of a stream again, since it may be revoked or expire meanwhile."""

    def __init__(self, connection: HTTPConnection, every_ms: int = RECHECK_INTERVAL_MS) -> None:
        self._connection = connection
        self._every_ms = every_ms
        self._checked_at_ms = monotonic_ms()

    async def check(self) -> None:
        """Refuse a token that is no longer valid; at most once per interval. During an outage the stream continues."""
        if monotonic_ms() - self._checked_at_ms < self._every_ms:
            return
        with suppress(TryLater, Unreachable):
            await get_access(self._connection).authenticate(self._connection)
        self._checked_at_ms = monotonic_ms()


class RequiredScope:
    """The scope that a route requires, as a dependency that returns the principal."""

    def __init__(
        self, scope: TokenScope, *, by_queue: bool = False, bound: bool = False, for_runners: bool = False
    ) -> None:
        self.scope = scope
        self.by_queue = by_queue
        self.bound = bound
        self.for_runners = for_runners
        """Whether runners of other systems use the route, some of them without a token."""

    async def __call__(self, connection: HTTPConnection) -> Principal:
        early = connection.scope.get("state", {}).pop(PRINCIPAL_KEY, None)
        if early is not None and early[0] is self:
            known: Principal = early[1]
            return known
        found = await get_access(connection).authenticate(connection)
        connection.state.token = found.token
        return self.authorize(found)

    async def authenticate_early(self, connection: HTTPConnection) -> None:
        """Authenticate before the body is read, for the route's own call."""
        found = await self(connection)
        connection.scope["state"][PRINCIPAL_KEY] = self, found

    def authorize(self, found: Principal) -> Principal:
        """Refuse a principal that lacks the scope, or whose token is limited to other routes."""
        if found is ANONYMOUS_RUNNER and not self.for_runners:
            raise Denied(RUNNERS_ONLY_HINT, status=401)
        if not found.has_scope(self.scope):
            has = ", ".join(sorted(found.scopes)) or "none"
            raise Denied(f"This needs a token with the scope {self.scope}; yours has {has}.")
        # A runner with a token for some queues registers only for these, so all that it holds is in them.
        if found.queues and not self.by_queue and not (self.for_runners and found.bound):
            raise Denied(f"This token is only for the queues {', '.join(found.queues)}.")
        if found.bound is not None and not self.bound:
            raise Denied("This token is bound to a runner or worker, and only valid for its routes.")
        return found


def require_scope(scope: str, *, by_queue: bool = False, bound: bool = False, for_runners: bool = False) -> Any:
    """The scope that a route requires, as its dependency."""
    return Depends(RequiredScope(TokenScope(scope), by_queue=by_queue, bound=bound, for_runners=for_runners))


def _is_local(connection: HTTPConnection) -> bool:
    """Whether the client is on this machine and sends requests of its own: a proxy forwards those of others."""
    client = connection.client
    forwarded = any(name.startswith(PROXY_HEADERS) for name, _ in connection.scope["headers"])
    return not forwarded and (_is_unix_socket(connection) or (client is not None and is_loopback(client.host)))


def _is_unix_socket(connection: HTTPConnection) -> bool:
    """Whether the request came over the unix socket: then the server address is a path."""
    server: tuple[str, int | None] | None = connection.scope.get("server")
    return server is not None and server[1] is None and server[0].startswith("/")


def read_token_file(path: str) -> Sequence[str]:
    """The digests of the tokens in a file."""
    if not path:
        return ()
    try:
        lines = Path(path).read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"The tokens in {path} cannot be read: {error}.") from error
    if not lines or any(len(line) < FILE_TOKEN_LENGTH_MIN for line in lines):
        raise Invalid(
            f"{path} has to hold a token on each line, of {FILE_TOKEN_LENGTH_MIN} characters at the least; "
            "`openssl rand -hex 32` makes one."
        )
    return tuple(map(hash_secret, lines))
