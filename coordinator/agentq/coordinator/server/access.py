"""Who asks, and whether they may: bearer tokens, their scopes, and how often they may ask.

A request shows its token in `Authorization: Bearer aq_…`, and nowhere else: what stands in an address ends up in logs.
Each use of a token is looked up, counted and, once a minute, noted by one script, so that a token that was revoked is
refused at once, by every server. A server on loopback also takes the token of this machine (`local_token.py`), and
needs none on its unix socket, which only its user reaches.

A route says what it takes: `Annotated[Principal, allowed("read")]`. A token that is good for some queues only may use
the routes that are told so (`by_queue`), which check the queue of what they touch; one that is bound to a runner or
worker only those that are told that (`bound`), which check whose it is. All others refuse them.
"""

from __future__ import annotations

import hmac
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fastapi import Depends
from starlette.requests import HTTPConnection

from agentq.coordinator.clock import monotonic_ms
from agentq.coordinator.errors import Invalid, TryLater, Unreachable
from agentq.coordinator.maker import set_maker
from agentq.coordinator.server.gathering import Gathering
from agentq.coordinator.server.guesses import Guesses
from agentq.coordinator.server.problems import Denied, TooMany
from agentq.coordinator.server_settings import ServerSettings
from agentq.coordinator.tokens import HOME, Presented, Rate, Scope, digest_of, presented, rate_of
from agentq.coordinator.url import is_loopback

if TYPE_CHECKING:
    from agentq.coordinator.server.service import Service

LOOKED_AT = "looked_at"
"""Under which name it is kept with a request who sends it, until the route asks."""
STANDING_MS = 5_000
"""How often whoever follows something is looked at again, at the most."""
REMEMBERED = 10_000
"""Tokens that were good here, which are no guesses."""
TOKEN_FILE_LENGTH_MIN = 32
TOGETHER = 500
FORWARDED = (b"x-forwarded-", b"forwarded", b"x-real-ip", b"via", b"cf-connecting-ip", b"true-client-ip")
"""What the names of the heads begin with that proxies add."""


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks."""

    token: str | None
    """The id of their token; None without one."""
    name: str
    scopes: frozenset[Scope]
    queues: tuple[str, ...] = ()
    """The only queues that they may touch; all if there are none."""
    bound: str | None = None
    """What they are bound to, for a runner's or worker's token: they may touch only what was made known under it."""

    def may(self, scope: Scope) -> bool:
        return scope in self.scopes or Scope.ADMIN in self.scopes

    def check_queue(self, queue: str) -> None:
        """Refuse a queue that is not theirs."""
        if self.queues and queue not in self.queues:
            raise Denied(f"This token is good for the queues {', '.join(self.queues)}, not for {queue}.")

    def may_touch(self, owner: str | None) -> bool:
        """Whether what was made known by a token with this id (or without one) is theirs to touch."""
        return self.bound is None or self.bound == (owner or "")


EVERYBODY = Principal(None, "somebody on this machine", frozenset(Scope))
RUNNER = Principal(None, "a runner on this machine", frozenset({Scope.WORK}), bound="open")
"""A runner of another system without a token: it may touch what was made known in the same way."""
NO_TOKEN = (
    "This needs a token: Authorization: Bearer aq_…; `agentq token show` tells that of this machine, and `agentq token "
    "new` makes others."
)

NOT_A_RUNNER = (
    "This needs a token: Authorization: Bearer aq_…, which `agentq token show` tells. Without one --open-runners lets "
    "runners in, and no clients; for clients that cannot send a token, start the server with --no-token."
)


class Admitted(NamedTuple):
    """What the script tells of a token."""

    name: str
    kind: str
    digest: str
    scopes: str
    queues: str
    expired: str
    wait_ms: int | str


class Access:
    """Tells who asks, for one server."""

    def __init__(
        self, service: Service, settings: ServerSettings, *, open_to_all: bool = False, local: str = ""
    ) -> None:
        self._service = service
        self._open_to_all = open_to_all
        self._from_here = is_loopback(settings.host) and not settings.require_tokens
        self._open_runners = is_loopback(settings.host) and settings.open_runners
        self._rate: Rate | None = rate_of(settings.rate) if settings.rate else None
        admin = frozenset({Scope.ADMIN})
        self._files = dict.fromkeys(file_tokens(settings.token_file), Principal("file", "the token file", admin))
        if local:
            self._files[digest_of(local)] = Principal("local", "the token of this machine", admin)
        self._good: OrderedDict[str, str] = OrderedDict()
        self._guesses = Guesses()
        self._admit: Gathering[Presented, Admitted] = Gathering(self._ask, most=TOGETHER)

    async def principal(self, connection: HTTPConnection) -> Principal:
        """Who asks. Refuses a token that is not good, and whoever has none and needs one."""
        found = await self._principal(connection)
        set_maker(found.token or "", *found.queues)
        return found

    async def _principal(self, connection: HTTPConnection) -> Principal:
        scheme, _, text = connection.headers.get("authorization", "").partition(" ")
        if not scheme:
            return self._without(connection)
        if scheme.lower() != "bearer":
            raise Denied("A token is shown as Authorization: Bearer aq_….", status=401)
        of_file = self._of_file(text.strip())
        if of_file is not None:
            return of_file
        shown = presented(text.strip())
        if shown is None:
            raise Denied("This is not a token of agentq; it may have been cut off.", status=401)
        return await self._of_token(shown, connection.client.host if connection.client else "")

    def _without(self, connection: HTTPConnection) -> Principal:
        """Who asks without a token, if they may."""
        is_here = _is_here(connection)
        if self._open_to_all or (is_here and (self._from_here or _is_on_socket(connection))):
            return EVERYBODY
        if is_here and self._open_runners:
            return RUNNER
        raise Denied(NO_TOKEN, status=401)

    async def _of_token(self, shown: Presented, address: str) -> Principal:
        is_known = self._good.get(shown.id) == shown.digest
        if not is_known:
            self._guesses.take(address)
        try:
            found = await self._admit(shown)
        except (TryLater, Unreachable):
            if not is_known:
                self._guesses.give_back(address)
            raise
        if not hmac.compare_digest(found.digest, shown.digest) or found.kind != shown.kind:
            self._good.pop(shown.id, None)
            raise Denied("This token is not known; it may have been revoked.", status=401)
        if found.expired:
            self._good.pop(shown.id, None)
            raise Denied("This token has expired; `agentq token new` makes another.", status=401)
        if not is_known:
            self._guesses.give_back(address)
        self._good[shown.id] = shown.digest
        self._good.move_to_end(shown.id)
        if len(self._good) > REMEMBERED:
            self._good.popitem(last=False)
        if found.wait_ms:
            raise TooMany(int(found.wait_ms))
        scopes, bound = frozenset(map(Scope, found.scopes.split())), None if found.kind == "client" else shown.id
        return Principal(shown.id, found.name, scopes, tuple(found.queues.split()), bound)

    def _of_file(self, text: str) -> Principal | None:
        shown = digest_of(text)
        good = [principal for digest, principal in self._files.items() if hmac.compare_digest(shown, digest)]
        return good[0] if good else None

    async def _ask(self, tokens: list[Presented]) -> list[Admitted]:
        rate = self._rate or ("", "", "")
        rows = [word for each in tokens for word in (each.id, each.digest)]
        flat = await self._service.ask(self._service.store.call, "token/check", HOME, *rate, *rows)
        width = len(Admitted._fields)
        return [Admitted(*flat[at : at + width]) for at in range(0, len(flat), width)]


class Standing:
    """Whether whoever follows something still may: their token may be revoked, or expire, while they do."""

    def __init__(self, connection: HTTPConnection, every_ms: int = STANDING_MS) -> None:
        self._connection = connection
        self._every_ms = every_ms
        self._looked_at_ms = monotonic_ms()

    async def check(self) -> None:
        """Refuse who may no longer, now and then; who cannot be told at the moment goes on."""
        if monotonic_ms() - self._looked_at_ms < self._every_ms:
            return
        service: Service = self._connection.app.state.service
        with suppress(TryLater, Unreachable):
            await service.access.principal(self._connection)
        self._looked_at_ms = monotonic_ms()


class Allowed:
    """What a route takes: a dependency that tells who asks, or refuses."""

    def __init__(self, scope: Scope, *, by_queue: bool = False, bound: bool = False, foreign: bool = False) -> None:
        self.scope = scope
        self.by_queue = by_queue
        self.bound = bound
        self.foreign = foreign
        """Whether it is a route of runners of other systems, of which some have no token."""

    async def __call__(self, connection: HTTPConnection) -> Principal:
        looked_at = connection.scope.get("state", {}).pop(LOOKED_AT, None)
        if looked_at is not None and looked_at[0] is self:
            known: Principal = looked_at[1]
            return known
        service: Service = connection.app.state.service
        found = await service.access.principal(connection)
        connection.state.token = found.token
        return self.admit(found)

    async def look(self, connection: HTTPConnection) -> None:
        """The same ahead of it, once."""
        found = await self(connection)
        connection.scope["state"][LOOKED_AT] = self, found

    def admit(self, found: Principal) -> Principal:
        """Let somebody in, or refuse them."""
        if found is RUNNER and not self.foreign:
            raise Denied(NOT_A_RUNNER, status=401)
        if not found.may(self.scope):
            has = ", ".join(sorted(found.scopes)) or "none"
            raise Denied(f"This needs a token with the scope {self.scope}; yours has {has}.")
        # What a runner with a token of some queues holds is of these: it registers for no other.
        if found.queues and not self.by_queue and not (self.foreign and found.bound):
            raise Denied(f"This token is good only for what is in the queues {', '.join(found.queues)}.")
        if found.bound is not None and not self.bound:
            raise Denied("This token is a runner's or worker's, and good only for what that does.")
        return found


def allowed(scope: str, *, by_queue: bool = False, bound: bool = False, foreign: bool = False) -> Any:
    """The scope that a route takes, as its dependency."""
    return Depends(Allowed(Scope(scope), by_queue=by_queue, bound=bound, foreign=foreign))


def _is_here(connection: HTTPConnection) -> bool:
    """Whether the client is on this machine, and speaks for itself: a proxy speaks for anybody."""
    client = connection.client
    forwarded = any(name.startswith(FORWARDED) for name, _ in connection.scope["headers"])
    return not forwarded and (_is_on_socket(connection) or (client is not None and is_loopback(client.host)))


def _is_on_socket(connection: HTTPConnection) -> bool:
    """Whether it came by the unix socket: there the server has a path in place of an address and a port."""
    server: tuple[str, int | None] | None = connection.scope.get("server")
    return server is not None and server[1] is None and server[0].startswith("/")


def file_tokens(path: str) -> Sequence[str]:
    """The digests of the tokens in a file."""
    if not path:
        return ()
    try:
        lines = Path(path).read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"The tokens in {path} cannot be read: {error}.") from error
    if not lines or any(len(line) < TOKEN_FILE_LENGTH_MIN for line in lines):
        raise Invalid(
            f"{path} has to hold a token on each line, of {TOKEN_FILE_LENGTH_MIN} characters at the least; "
            "`openssl rand -hex 32` makes one."
        )
    return tuple(map(digest_of, lines))
