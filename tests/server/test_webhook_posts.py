"""One POST to a receiver: which addresses are allowed, and limits on what the receiver can do."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import time
from email.utils import formatdate
from ipaddress import ip_address
from pathlib import Path

import pytest
from support.servers import until
from support.webhook_receiver import Receiver, receiving

from agentq.coordinator.errors import AgentqError, Invalid, NotAllowed
from agentq.coordinator.webhooks.delivery import DeliveryResult
from agentq.server.webhooks.allowed_addresses import AllowedAddresses
from agentq.server.webhooks.http_client import WebhookHttpClient

LOCAL = ("127.0.0.0/8",)
HANG_MS = 500
"""How long an answer is waited for that does not come; for the others there is time enough on every machine."""


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("8.8.8.8", True),
        ("2606:4700:4700::1111", True),
        ("::ffff:8.8.8.8", True),
        ("127.0.0.1", False),
        ("0.0.0.0", False),
        ("10.1.2.3", False),
        ("172.16.0.1", False),
        ("192.168.1.1", False),
        ("169.254.169.254", False),
        ("100.100.100.200", False),
        ("224.0.0.1", False),
        ("255.255.255.255", False),
        ("::1", False),
        ("::", False),
        ("fe80::1", False),
        ("fd00:ec2::254", False),
        ("::ffff:127.0.0.1", False),
        ("64:ff9b::7f00:1", False),
        ("2002:7f00:1::", False),
        ("2001:db8::1", False),
        ("fec0::1", False),
        ("168.63.129.16", False),
        ("192.0.0.192", False),
        ("192.88.99.1", False),
        ("192.31.196.1", False),
        ("3fff::1", False),
        ("5f00::1", False),
        ("64:ff9b::a83f:8110", False),
        ("64:ff9b::808:808", True),
        ("2a00:1450:4001::1", True),
    ],
)
def test_only_public_addresses_are_reached(address: str, public: bool) -> None:
    assert AllowedAddresses().allows(ip_address(address)) is public


def test_a_network_that_is_named_is_reached_and_no_other() -> None:
    reach = AllowedAddresses(["10.0.0.0/8", "fd00::/8"])

    assert [reach.allows(ip_address(each)) for each in ("10.2.3.4", "::ffff:10.2.3.4", "fd00::1")] == [True] * 3
    assert not reach.allows(ip_address("127.0.0.1"))
    with pytest.raises(Invalid, match=r"'10\.0\.0\.0/99' is not a network"):
        AllowedAddresses(["10.0.0.0/99"])


class Resolver:
    """Tells another address each time that it is asked: the fault that this is about."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> list[str]:
        self.asked.append(f"{host}:{port}")
        return self.answers.pop(0)


def test_a_name_is_resolved_once_and_all_of_its_addresses_count() -> None:
    async def pinned(resolver: Resolver, *networks: str) -> str:
        return await AllowedAddresses(networks, resolver=resolver).resolve_allowed("rebind.example", 443)

    assert asyncio.run(pinned(Resolver(["8.8.8.8", "1.1.1.1"]))) == "8.8.8.8"
    for found in (["8.8.8.8", "127.0.0.1"], ["::1"], ["169.254.169.254"]):
        with pytest.raises(NotAllowed, match="not a public address"):
            asyncio.run(pinned(Resolver(found)))
    with pytest.raises(Invalid, match="has no address"):
        asyncio.run(pinned(Resolver([])))


def test_the_connection_goes_to_the_address_that_was_checked_whatever_the_name_means_next() -> None:
    resolver = Resolver(["127.0.0.1"], ["127.0.0.2", "10.0.0.1"])
    poster = WebhookHttpClient(AllowedAddresses(LOCAL, resolver=resolver), plain_http=True)
    with receiving() as receiver:
        port = receiver.url.rpartition(":")[2]

        async def twice() -> list[DeliveryResult]:
            return [await poster.post(f"http://rebind.example:{port}/in?x=1", {}, b"{}") for _ in range(2)]

        first, second = asyncio.run(twice())

    assert (first.ok, first.status) == (True, 204)
    assert receiver.got[0][0]["host"] == f"rebind.example:{port}"
    assert (second.ok, "10.0.0.1" in second.error) == (False, True)
    assert len(resolver.asked) == 2


@pytest.mark.needs("openssl")
def test_the_certificate_is_that_of_the_name_though_the_connection_goes_to_an_address(folder: Path) -> None:
    made = "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=hooks.example -addext"
    argv = [*made.split(), "subjectAltName=DNS:hooks.example", "-keyout", f"{folder}/key", "-out", f"{folder}/cert"]
    subprocess.run(argv, check=True, capture_output=True)
    known = ssl.create_default_context(cafile=f"{folder}/cert")
    own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own.load_cert_chain(f"{folder}/cert", f"{folder}/key")

    async def post(name: str, port: str, context: ssl.SSLContext | None) -> DeliveryResult:
        reach = AllowedAddresses(LOCAL, resolver=Resolver(["127.0.0.1"]))
        return await WebhookHttpClient(reach, context=context).post(f"https://{name}:{port}/in", {}, b"{}")

    with receiving(own) as receiver:
        port = receiver.url.rpartition(":")[2]
        good = asyncio.run(post("hooks.example", port, known))
        other_name = asyncio.run(post("other.example", port, known))
        unknown = asyncio.run(post("hooks.example", port, None))

    assert (good.ok, good.status) == (True, 204)
    assert [each.ok for each in (other_name, unknown)] == [False, False]
    assert all("certificate" in each.error for each in (other_name, unknown))
    assert len(receiver.got) == 1


@pytest.mark.parametrize(
    ("answer", "ok", "status", "error"),
    [
        (200, True, 200, ""),
        (302, False, 302, "it answered 302, and redirects are not followed"),
        (410, False, 410, "it answered 410"),
        (503, False, 503, "it answered 503"),
        ("flood", True, 200, ""),
        ("hang", False, None, f"it did not answer within {HANG_MS} ms"),
        ("vanish", False, None, "it hung up without an answer"),
        ("garbage", False, None, "its answer is not HTTP/1.1"),
        ("endless head", False, None, "the head of its answer is longer than 65536 bytes"),
    ],
)
def test_whatever_a_receiver_does_has_an_end_and_a_name(
    answer: int | str, ok: bool, status: int | None, error: str
) -> None:
    with receiving() as receiver:
        verdict = posted(receiver, answer)
        until(lambda: receiver.got, "the request to be read")

    assert (verdict.ok, verdict.status, verdict.error) == (ok, status, error)
    assert verdict.gone is (status == 410)
    assert verdict.took_ms >= (HANG_MS if answer == "hang" else 0)
    assert len(receiver.got) == 1, "nothing was followed"


@pytest.mark.parametrize(
    ("said", "least", "most"),
    [
        ("120", 120_000, 120_000),
        ("Fri, 31 Dec 1999 23:59:59 GMT", 0, 0),
        ("a date", 80_000, 101_000),
        ("9" * 4000, 3_600_000, 3_600_000),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 3_600_000, 3_600_000),
        ("-5", 0, 0),
        ("soon", 0, 0),
        ("\N{SUPERSCRIPT TWO}", 0, 0),
    ],
)
def test_a_receiver_says_how_long_it_is_to_be_left_alone_within_bounds(said: str, least: int, most: int) -> None:
    with receiving() as receiver:
        receiver.retry_after = formatdate(time.time() + 100, usegmt=True) if said == "a date" else said
        verdict = posted(receiver, 503)

    assert verdict.status == 503
    assert least <= verdict.wait_ms <= most


def posted(receiver: Receiver, answer: int | str) -> DeliveryResult:
    receiver.answers = [answer]
    poster = WebhookHttpClient(
        AllowedAddresses(LOCAL), plain_http=True, timeout_ms=HANG_MS if answer == "hang" else 60_000
    )
    return asyncio.run(poster.post(f"{receiver.url}/in", {"webhook-id": "msg_1"}, b"{}"))


def test_who_is_not_there_and_whose_certificate_is_not_in_order_is_told_as_that() -> None:
    async def post(url: str, *, plain: bool = True) -> DeliveryResult:
        return await WebhookHttpClient(AllowedAddresses(LOCAL), plain_http=plain, timeout_ms=60_000).post(
            url, {}, b"{}"
        )

    with receiving() as receiver:
        port = receiver.url.rpartition(":")[2]
        plain = asyncio.run(post(f"https://127.0.0.1:{port}/"))
        refused = asyncio.run(post(receiver.url, plain=False))
    gone = asyncio.run(post(f"http://127.0.0.1:{port}/"))

    assert "TLS is not in order" in plain.error
    assert "needs an https address" in refused.error
    assert "it cannot be reached: " in gone.error
    assert receiver.got == []
    with pytest.raises(AgentqError, match="cannot be found"):
        asyncio.run(AllowedAddresses().resolve_allowed("no-such-host.invalid", 443))
