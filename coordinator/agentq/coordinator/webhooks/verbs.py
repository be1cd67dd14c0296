"""The records and verbs of webhooks; `delivery.py` delivers to them.

A webhook keeps its position in the events of each partition. Messages are sent one after the other, in the order of
the events, and repeated until the receiver accepts: at least once, with the same id each time. All webhooks live in the
first partition.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, TypeAdapter

from agentq.coordinator.bounds import (
    DELIVERIES_KEPT,
    ERROR_CHARACTERS,
    SECRET_OVERLAP_MS,
    SECRET_OVERLAP_MS_MAX,
    URL_CHARACTERS,
)
from agentq.coordinator.clock import monotonic_ms
from agentq.coordinator.errors import Invalid, NotFound, refusal_error
from agentq.coordinator.events.event_filter import EventFilter
from agentq.coordinator.events.stream import STREAM_START, PartitionEvents
from agentq.coordinator.model.durations import format_duration, format_iso
from agentq.coordinator.model.field_types import Name, check_name
from agentq.coordinator.model.ids import new_nonce
from agentq.coordinator.storage.socket_link import pairs_to_dict
from agentq.coordinator.storage.store import NamespaceStore
from agentq.coordinator.webhooks.signature import decode_secret, make_secret

HOME_PARTITION = 0
"""The partition that webhooks live in."""
FIELDS_PER_WEBHOOK = 3
"""Fields of each webhook in the reply of `webhook/list`."""
TEST_EVENT = "webhook.test"

_name_adapter: TypeAdapter[str] = TypeAdapter(Name)


class WebhookRecord(BaseModel):
    """A webhook. Its secret is shown once, when it is made."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    name: str
    url: str
    filter: EventFilter
    state: Literal["active", "paused", "disabled"]
    why: str = ""
    """Why it is paused or disabled, or the last error of its receiver."""
    created_at_ms: int
    delivered_at_ms: int | None = None
    """When the receiver last accepted a message."""
    failures: int = 0
    """Attempts that failed since then."""
    failing_since_ms: int | None = None
    retry_at_ms: int | None = None
    positions: str
    """The positions up to which events were delivered, one for each partition."""
    holder: str = ""
    """The server that holds its lease, or held it last."""
    made_by: str = ""
    """The token that made it; empty without one."""
    requested_messages: int = 0
    """Messages that a client requested and that are not delivered yet."""


class WebhookDelivery(BaseModel):
    """One attempt to deliver a message."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    id: str
    message: str
    type: str
    ok: bool
    status: int | None
    error: str
    took_ms: int
    attempt: int
    asked: bool
    """Whether a client requested it, as a test or a repetition."""
    body: str

    @property
    def at_ms(self) -> int:
        """When it ended, by the server's clock."""
        return int(self.id.partition("-")[0])


class Webhooks:
    """The webhooks of one namespace."""

    def __init__(self, store: NamespaceStore) -> None:
        self.store = store

    def add(
        self, name: str | None, url: str, which: EventFilter, *, secret: str | None = None, operation: str | None = None
    ) -> tuple[WebhookRecord, str]:
        """Make a webhook for events from now on; returns its secret too, which is shown here only."""
        operation = operation or self.store.nonce()
        name = make_webhook_name() if name is None else check_webhook_name(name)
        check_webhook_url(url)
        secret = secret or make_secret()
        decode_secret(secret)
        at = ",".join(PartitionEvents(self.store, partition).last_id() for partition in self.store.partitions())
        filter_ = which.model_dump_json(exclude_defaults=True)
        self._call("webhook/create", name, url, filter_, secret, at, operation)
        return self.get(name), secret

    def get(self, name: str) -> WebhookRecord:
        """Return a webhook."""
        found = self._read(check_webhook_name(name))
        if not found:
            raise self._unknown(name)
        return found[0]

    def all(self) -> list[WebhookRecord]:
        """Every webhook, the oldest first."""
        return self._read()

    def remove(self, name: str) -> None:
        """Remove a webhook."""
        self._call("webhook/delete", check_webhook_name(name))

    def pause(self, name: str, why: str = "") -> WebhookRecord:
        """Pause deliveries. When resumed, it delivers the events of the pause, as far as they are kept."""
        return self._update(name, state="paused", why=why)

    def resume(self, name: str) -> WebhookRecord:
        """Continue deliveries from its positions, also of a webhook that was disabled."""
        return self._update(name, state="active")

    def rotate(self, name: str, *, secret: str | None = None, overlap_ms: int = SECRET_OVERLAP_MS) -> str:
        """Replace its secret; the new one is shown here only. The old one also signs for `overlap_ms`."""
        check_secret_overlap(overlap_ms)
        secret = secret or make_secret()
        decode_secret(secret)
        self._update(name, secret=secret, overlap_ms=overlap_ms)
        return secret

    def deliveries(self, name: str, *, limit: int = DELIVERIES_KEPT) -> list[WebhookDelivery]:
        """The last attempts and their results, the newest first."""
        self.get(name)
        return list(self._log(name, limit))

    def newest(self, name: str) -> str:
        """The id of the last recorded attempt."""
        return next((each.id for each in self._log(check_webhook_name(name), 1)), STREAM_START)

    def awaited(self, name: str, message: str, after: str, within_ms: int) -> WebhookDelivery | None:
        """Wait for the first attempt at a message after another attempt; None when the time is over."""
        key, deadline_ms = self.store.key(HOME_PARTITION, "deliveries", name), monotonic_ms() + within_ms
        while (left_ms := deadline_ms - monotonic_ms()) > 0:
            reply = self.store.connection.block("XREAD", "BLOCK", left_ms, "STREAMS", key, after, timeout_ms=left_ms)
            for entry, flat in reply[0][1] if reply else ():
                after, found = entry, _parse_delivery(entry, flat)
                if found.message == message:
                    return found
        return None

    def redeliver(self, name: str, message: str, *, operation: str | None = None) -> None:
        """Request that a message is delivered again, unchanged and with the same id. It is tried once."""
        self.get(name)
        found = next((each for each in self._log(name, DELIVERIES_KEPT) if each.message == message), None)
        if found is None:
            raise NotFound(
                f"The log of the webhook {name} has no message {message[:80]!r}; it keeps the last {DELIVERIES_KEPT}."
            )
        self._queue_message(name, found.message, found.type, found.body, operation)

    def test(self, name: str, *, operation: str | None = None) -> str:
        """Request delivery of a test message; returns its id, to find it among the deliveries."""
        message = f"msg_test_{operation or new_nonce()}"
        body = format_body(TEST_EVENT, self.store.time_ms(), {"webhook": name})
        self._queue_message(check_webhook_name(name), message, TEST_EVENT, body, operation)
        return message

    def _queue_message(self, name: str, message: str, kind: str, body: str, operation: str | None) -> None:
        message_json = json.dumps({"id": message, "type": kind, "body": body}, separators=(",", ":"))
        self._call("webhook/redeliver", name, message_json, operation or self.store.nonce())

    def _update(
        self, name: str, *, state: str = "", why: str = "", secret: str = "", overlap_ms: int = 0
    ) -> WebhookRecord:
        self._call(
            "webhook/update",
            check_webhook_name(name),
            state,
            why[:ERROR_CHARACTERS],
            secret,
            overlap_ms,
            self.store.nonce(),
        )
        return self.get(name)

    def _log(self, name: str, most: int) -> Iterator[WebhookDelivery]:
        key = self.store.key(HOME_PARTITION, "deliveries", name)
        for entry, flat in self.store.connection.command("XREVRANGE", key, "+", "-", "COUNT", max(1, most)):
            yield _parse_delivery(entry, flat)

    def _read(self, *names: str) -> list[WebhookRecord]:
        flat = self.store.call("webhook/list", HOME_PARTITION, *names)
        return [_parse_webhook(*flat[at : at + FIELDS_PER_WEBHOOK]) for at in range(0, len(flat), FIELDS_PER_WEBHOOK)]

    def _call(self, script: str, name: str, *words: str | int) -> None:
        reply = str(self.store.call(script, HOME_PARTITION, name, *words))
        if reply == "not_found":
            raise self._unknown(name)
        refused = refusal_error(reply, f"webhook {name}")
        if refused is not None:
            raise refused

    def _unknown(self, name: str) -> NotFound:
        return NotFound(f"There is no webhook {name[:80]}; `agentq webhook ls` shows those that there are.")


def check_secret_overlap(overlap_ms: int) -> None:
    """Refuse an overlap in which a replaced secret may not sign."""
    if not 0 <= overlap_ms <= SECRET_OVERLAP_MS_MAX:
        longest, wanted = format_duration(SECRET_OVERLAP_MS_MAX), format_duration(overlap_ms)
        raise Invalid(f"A secret that was replaced signs for {longest} at the most, not {wanted}.")


def make_webhook_name() -> str:
    """Make a random name for a webhook."""
    return f"hook-{new_nonce()}"


def format_body(kind: str, at_ms: int, facts: dict[str, Any]) -> str:
    """The body of a message."""
    return json.dumps({"type": kind, "timestamp": format_iso(at_ms), "data": facts}, separators=(",", ":"))


HTTPS_ONLY_MESSAGE = (
    "A webhook needs an https address; AGENTQ_SERVER_WEBHOOK_HTTP=true allows http, in a network of your own."
)


def check_webhook_url(url: str) -> None:
    """Refuse an invalid URL. Whether its address is allowed is checked at delivery."""
    if len(url) > URL_CHARACTERS:
        raise Invalid(f"The address of a webhook has {URL_CHARACTERS} characters at the most, not {len(url)}.")
    if not url.isascii() or not url.isprintable() or " " in url:
        raise Invalid("The address of a webhook is written in ASCII, without spaces.")
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise Invalid(f"The address of a webhook is not valid: {error}.") from error
    if parts.scheme not in ("https", "http") or not host:
        raise Invalid("The address of a webhook looks like https://example.com/agentq.")
    if parts.username is not None or parts.password is not None:
        raise Invalid("The address of a webhook has no user or password in it; it is signed instead.")
    if parts.fragment:
        raise Invalid("The address of a webhook has no # in it.")


def _parse_delivery(entry: str, flat: list[Any]) -> WebhookDelivery:
    fields = pairs_to_dict(flat)
    status = fields.pop("status") or None
    return WebhookDelivery.model_validate(fields | {"id": entry, "status": status, "asked": fields["requested"] == "1"})


def _parse_webhook(name: str, fields_json: str, requested_messages: int) -> WebhookRecord:
    fields: dict[str, Any] = json.loads(fields_json)
    computed = {"name": name, "filter": json.loads(fields["filter"]), "requested_messages": requested_messages}
    return WebhookRecord.model_validate({**fields, **computed})


def check_webhook_name(name: str) -> str:
    """Validate the name of a webhook; raises `Invalid` with one sentence."""
    return check_name(_name_adapter, name, "webhook")
