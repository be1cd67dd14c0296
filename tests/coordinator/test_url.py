"""Which addresses are understood, which are refused and how, and that no password is ever shown."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest

from agentq.coordinator.errors import Invalid
from agentq.coordinator.storage.connection import Connection
from agentq.coordinator.storage.url import parse_url, redact_url


@pytest.mark.parametrize(
    ("url", "places", "options"),
    [
        ("redis://localhost", [("localhost", 6379)], {"db": 0}),
        ("redis://", [("localhost", 6379)], {"db": 0}),
        ("valkey://h:7/3", [("h", 7)], {"db": 3}),
        ("redis://h?db=4", [("h", 6379)], {"db": 4}),
        ("redis://:p%2F%23%40@h", [("h", 6379)], {"db": 0, "password": "p/#@"}),
        ("redis://u:p@[::1]:7/1", [("::1", 7)], {"db": 1, "username": "u", "password": "p"}),
        ("unix:///run/redis.sock?db=2", [("/run/redis.sock", 0)], {"db": 2}),
        ("unix://u:p@/run/a%20b.sock", [("/run/a b.sock", 0)], {"db": 0, "username": "u", "password": "p"}),
        ("unix:///run/redis.sock?password=p", [("/run/redis.sock", 0)], {"db": 0, "password": "p"}),
    ],
)
def test_one_server_is_understood(url: str, places: list[tuple[str, int]], options: dict[str, Any]) -> None:
    address = parse_url(url)

    assert (address.shape, list(address.places), address.options, address.tls) == ("single", places, options, False)


def test_sentinels_are_understood_with_their_own_password() -> None:
    address = parse_url("valkey+sentinel://u:p@a,b:7/jobs/3?sentinel_password=q")

    assert (address.shape, address.service) == ("sentinel", "jobs")
    assert address.places == (("a", 26379), ("b", 7))
    assert address.options == {"db": 3, "username": "u", "password": "p"}
    assert address.sentinel_options == {"password": "q"}


@pytest.mark.parametrize(
    "url", ["redis+cluster://a:1,b:2", "redis://a:1,b:2?cluster=true", "valkey://a:1,b:2?cluster=1"]
)
def test_a_cluster_is_understood(url: str) -> None:
    address = parse_url(url)

    assert (address.shape, address.places) == ("cluster", (("a", 1), ("b", 2)))


def test_tls_is_understood_for_servers_and_sentinels(tmp_path: Path) -> None:
    address = parse_url(f"rediss+sentinel://a/jobs?ssl_ca_certs={tmp_path}&ssl_min_version=1.3&ssl_check_hostname=no")
    expected = {
        "ssl_ca_certs": str(tmp_path),
        "ssl_min_version": ssl.TLSVersion.TLSv1_3,
        "ssl_check_hostname": False,
    }

    assert address.tls
    assert address.options == expected | {"db": 0}
    assert address.sentinel_options == expected
    assert parse_url("valkeys://h").options["ssl_check_hostname"] is True


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("", "must begin with"),
        ("h:6379", "must begin with"),
        ("http://h", "must begin with"),
        ("redis+magic://h", "must begin with"),
        ("redis://h/zero", "the database is a number"),
        ("redis://h/-1", "the database is a number"),
        ("redis://h?db=x", "the database is a number"),
        ("redis://h:0", "a port lies between 1 and 65535"),
        ("redis://h:65536", "a port lies between 1 and 65535"),
        ("redis://:s3cret/x@h", "a host or a port cannot be read"),
        ("redis://:s3cret#x@h", "must not contain #"),
        ("redis://:s3cret?x@h", "a host or a port cannot be read"),
        ("redis://[::1", "a host or a port cannot be read"),
        ("redis://a:1,b:2", "several hosts need redis+sentinel:// or redis+cluster://"),
        ("redis+sentinel://a,b", "name the service"),
        ("unix://run/redis.sock", "three slashes"),
        ("unix://", "three slashes"),
        ("redis://h?protocol=3", "the option 'protocol' is not known; known are db, cluster, username"),
        ("redis://:123?s3cret@h", "the option in it is not known"),
        ("redis://h?db=1&db=2", "given twice"),
        ("redis://h?ssl_cert_reqs=none", "the option 'ssl_cert_reqs' needs rediss://"),
        ("redis://h?cluster=maybe", "cluster is true or false"),
        ("rediss://h?ssl_cert_reqs=some", "none, optional or required"),
        ("rediss://h?ssl_check_hostname=some", "ssl_check_hostname is true or false"),
        ("rediss://h?ssl_min_version=1.1", "1.2 or 1.3"),
        ("rediss://h?ssl_ca_certs=/no/such/file", "ssl_ca_certs names /no/such/file, which does not exist"),
    ],
)
def test_a_bad_address_is_refused_in_one_sentence_with_an_example(url: str, problem: str) -> None:
    with pytest.raises(Invalid) as caught:
        Connection(url)
    message = str(caught.value)

    assert message.startswith("The address of the server is not valid: ")
    assert problem in message
    assert ", for example " in message
    assert "\n" not in message
    assert "s3cret" not in message


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://user:s3cret@h:7/3?db=4", "redis://h:7/4"),
        ("valkeys://:s3cret@h", "rediss://h:6379/0"),
        ("redis+sentinel://:s3cret@a,b/jobs?sentinel_password=s3cret@", "redis+sentinel://a:26379,b:26379/jobs/0"),
        ("redis+cluster://:s3cret@[::1]:7", "redis+cluster://[::1]:7"),
        ("unix://user:s3cret@/run/redis.sock", "unix:///run/redis.sock"),
        ("redis://:s3cret/?#@h/0", "redis://h/0"),
        ("redis://h?password=s3cret&x=1", "redis://h"),
    ],
)
def test_an_address_is_shown_without_its_secrets(url: str, shown: str) -> None:
    assert redact_url(url) == shown


def test_an_address_does_not_give_its_password_away_in_a_traceback() -> None:
    assert "s3cret" not in repr(parse_url("redis+sentinel://:s3cret@h/jobs?sentinel_password=s3cret"))
