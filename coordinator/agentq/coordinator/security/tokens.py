"""Tokens of the HTTP server: creates, lists and revokes them; the server's access control checks them.

    aq_client_3f09c2ab41d7_9c…64 digits…e0 51f0ab77
       kind   id           secret, 256 bits   checksum

Only the SHA-256 of the secret is kept, so that a reader of the store cannot use the token. The id is no secret:
logs and lists name a token by it. The checksum lets scanners of repositories tell a token from what only looks like
one.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from typing import Annotated, Any, Literal, NamedTuple
from zlib import crc32

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError

from agentq.coordinator.bounds import DELAY_MS_MAX, NAME_LENGTH
from agentq.coordinator.errors import Damaged, Invalid, NotFound, reading_record, refusal_error
from agentq.coordinator.model.durations import parse_duration_ms
from agentq.coordinator.model.field_types import PRINTABLE_PATTERN, Name, describe_error
from agentq.coordinator.storage.socket_link import pairs_to_dict
from agentq.coordinator.storage.store import NamespaceStore

HOME_PARTITION = 0
"""The partition that tokens live in."""
TOKEN_ID_LENGTH = 12
SECRET_LENGTH = 64
CHECKSUM_LENGTH = 8
TokenKind = Literal["client", "runner", "worker"]
TOKEN_KINDS: tuple[TokenKind, ...] = ("client", "runner", "worker")


class TokenScope(StrEnum):
    """What a token may do. `admin` is all of it."""

    SUBMIT = "submit"
    READ = "read"
    WORK = "work"
    ADMIN = "admin"


SCOPE_MEANINGS = {
    TokenScope.READ: "look at everything: runs and what they wrote, queues, workers, events",
    TokenScope.SUBMIT: "submit runs, turns, plans and schedules, signal, cancel and retry what was submitted",
    TokenScope.WORK: "be a runner or a worker: claim runs, and tell what becomes of them",
    TokenScope.ADMIN: "everything, as well as queues, limits, workers and tokens",
}


class RequestRate(NamedTuple):
    """So many requests in a time, `burst` of them at once."""

    units: int
    per_ms: int
    burst: int


class TokenRecord(BaseModel):
    """A token as it stands, without its secret."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    id: str
    name: str
    kind: TokenKind
    scopes: tuple[TokenScope, ...]
    queues: tuple[str, ...]
    """The only queues that it is good for; all if there are none."""
    rate: RequestRate | None
    created_at_ms: int
    expires_at_ms: int | None
    made_by: str = ""
    """The token that made it; empty without one."""
    used_at_ms: int | None
    """When it was last used, to the minute."""


@dataclass(frozen=True, slots=True)
class PresentedToken:
    """A presented token, split into its parts."""

    kind: str
    id: str
    digest: str


class TokenSpec(BaseModel):
    """What a new token is to be."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    name: Annotated[str, StringConstraints(min_length=1, max_length=NAME_LENGTH, pattern=PRINTABLE_PATTERN)]
    scopes: Annotated[tuple[TokenScope, ...], Field(min_length=1, max_length=len(TokenScope))]
    kind: TokenKind = "client"
    queues: Annotated[tuple[Name, ...], Field(max_length=100)] = ()
    expires_ms: Annotated[int, Field(gt=0, le=DELAY_MS_MAX)] | None = None
    rate: str | None = None


_spec_adapter: TypeAdapter[TokenSpec] = TypeAdapter(TokenSpec)


class Tokens:
    """The tokens of one namespace."""

    def __init__(self, store: NamespaceStore) -> None:
        self.store = store

    def new(
        self,
        name: str,
        scopes: Sequence[TokenScope | str],
        *,
        kind: str = "client",
        queues: Sequence[str] = (),
        expires_ms: int | None = None,
        rate: str | None = None,
    ) -> tuple[TokenRecord, str]:
        """Make a token; returns it, and its text, which cannot be shown again."""
        wanted = check_token(name, scopes, kind=kind, queues=queues, expires_ms=expires_ms, rate=rate)
        bucket = () if wanted.rate is None else parse_rate(wanted.rate)
        token, shown = make_token(wanted.kind)
        expires = "" if expires_ms is None else self.store.time_ms() + expires_ms
        digest = hash_secret(_extract_secret(shown))
        words = (token, name, wanted.kind, digest, " ".join(wanted.scopes), " ".join(wanted.queues))
        reply = self.store.call("token/create", HOME_PARTITION, *words, *(bucket or ("", "", "")), expires)
        refused = refusal_error(str(reply), f"token {token}")
        if refused is not None:
            raise refused
        return self.get(token), shown

    def get(self, token: str) -> TokenRecord:
        """A token as it stands."""
        self.store.guard()
        fields = pairs_to_dict(self.store.connection.command("HGETALL", self.store.key(HOME_PARTITION, "token", token)))
        if not fields:
            raise NotFound(f"There is no token {token[:80]}; `agentq token ls` shows those that there are.")
        return _parse_record(token, fields)

    def all(self) -> list[TokenRecord]:
        """Every token, the oldest first."""
        self.store.guard()
        found = []
        for token in self.store.connection.command("ZRANGE", self.store.key(HOME_PARTITION, "tokens"), 0, -1):
            fields = pairs_to_dict(
                self.store.connection.command("HGETALL", self.store.key(HOME_PARTITION, "token", token))
            )
            if fields:
                found.append(_parse_listed(token, fields))
        return found

    def revoke(self, token: str) -> None:
        """A token is good for nothing from now on. It may be named by its id, or by its name if only one has that."""
        if self.store.call("token/revoke", HOME_PARTITION, self.id_of(token)) == "not_found":
            raise NotFound(f"There is no token {token[:80]}; `agentq token ls` shows those that there are.")

    def id_of(self, token: str) -> str:
        """The id of a token that is named by that, or by its name."""
        named = [each.id for each in self.all() if each.name == token]
        if len(named) > 1:
            raise Invalid(f"Several tokens are called {token[:80]}: {', '.join(named)}; say which by its id.")
        return named[0] if named else token


def check_token(
    name: str,
    scopes: Sequence[TokenScope | str],
    *,
    kind: str = "client",
    queues: Sequence[str] = (),
    expires_ms: int | None = None,
    rate: str | None = None,
) -> TokenSpec:
    """Validate the fields of a new token; raises `Invalid` with one sentence."""
    fields = {"name": name, "scopes": scopes, "kind": kind, "queues": queues, "expires_ms": expires_ms, "rate": rate}
    try:
        wanted = _spec_adapter.validate_python(fields)
    except ValidationError as error:
        raise Invalid(f"The token is not valid: {describe_error(error)}") from error
    if wanted.kind != "client" and set(wanted.scopes) != {TokenScope.WORK}:
        raise Invalid(f"A token of a {wanted.kind} has the scope work, and no other.")
    if wanted.rate is not None:
        parse_rate(wanted.rate)
    return wanted


def make_token(kind: TokenKind) -> tuple[str, str]:
    """The id of a new token, and the text to be shown."""
    token = secrets.token_hex(TOKEN_ID_LENGTH // 2)
    shown = f"aq_{kind}_{token}_{secrets.token_hex(SECRET_LENGTH // 2)}"
    return token, f"{shown}{_compute_checksum(shown)}"


def _extract_secret(shown: str) -> str:
    return shown.rpartition("_")[2][:SECRET_LENGTH]


def parse_token(text: str) -> PresentedToken | None:
    """A token, taken apart; None for what is none, which needs no look at the store."""
    head, _, tail = text.rpartition("_")
    parts = head.split("_")
    if len(parts) != 3 or parts[0] != "aq" or parts[1] not in TOKEN_KINDS or len(parts[2]) != TOKEN_ID_LENGTH:
        return None
    secret, checksum = _extract_secret(text), tail[SECRET_LENGTH:]
    if len(tail) != SECRET_LENGTH + CHECKSUM_LENGTH or checksum != _compute_checksum(f"{head}_{secret}"):
        return None
    return PresentedToken(parts[1], parts[2], hash_secret(secret))


def hash_secret(secret: str) -> str:
    return sha256(secret.encode()).hexdigest()


def parse_rate(text: str) -> RequestRate:
    """Read a rate such as `600/1m`: so many at once after a quiet time, as well."""
    units, slash, span = text.partition("/")
    if not slash or not units.isdecimal() or not 1 <= int(units) <= 1_000_000_000:
        raise Invalid(f"{text[:40]!r} is not a rate; write it like 100/1s or 5000/1h.")
    per_ms = parse_duration_ms(span if span[:1].isdecimal() else f"1{span}")
    if per_ms < 1:
        raise Invalid(f"{text[:40]!r} is in no time at all; write it like 100/1s.")
    return RequestRate(int(units), per_ms, int(units))


def _compute_checksum(text: str) -> str:
    return f"{crc32(text.encode()):08x}"


def _parse_listed(token: str, fields: dict[str, str]) -> TokenRecord:
    """One whose record is damaged is there to be revoked, and good for nothing."""
    try:
        return _parse_record(token, fields)
    except Damaged:
        nothing: dict[str, Any] = dict.fromkeys(("rate", "expires_at_ms", "used_at_ms"))
        told = "its record is damaged; revoke it"
        return TokenRecord(id=token, name=told, kind="client", scopes=(), queues=(), created_at_ms=0, **nothing)


def _parse_record(token: str, fields: dict[str, str]) -> TokenRecord:
    with reading_record(f"the token {token}"):
        return _read_fields(token, fields)


def _read_fields(token: str, fields: dict[str, str]) -> TokenRecord:
    units = fields.get("units")
    return TokenRecord.model_validate(
        {
            "id": token,
            "name": fields["name"],
            "kind": fields["kind"],
            "scopes": fields["scopes"].split(),
            "queues": fields["queues"].split(),
            "rate": (units, fields["per_ms"], fields["burst"]) if units else None,
            "created_at_ms": fields["created_at_ms"],
            "expires_at_ms": fields["expires_at_ms"] or None,
            "used_at_ms": fields.get("used_at_ms"),
            "made_by": fields.get("made_by", ""),
        }
    )
