"""Secrets in what a run writes are replaced, in whatever form, and wherever the stream was cut."""

from __future__ import annotations

import base64
import json
import random
import re
from urllib.parse import quote, quote_plus

import pytest
from pydantic import JsonValue

from agentq.coordinator.security import secret_patterns
from agentq.coordinator.security.secret_patterns import PATTERN_BYTES_MAX
from agentq.worker.output import redaction
from agentq.worker.output.redaction import Redactor
from agentq.worker.output.secret_values import SecretValues

KEY = 'pa"ss/w\u00f6rd+with spaces&more'
SECRETS = SecretValues.of({"SERVICE_API_KEY": KEY, "PATH": "/usr/bin:/usr/local/bin"})
TOKENS = (
    "sk-ant-api03-abcDEF123_abcDEF123-abcDEF123",
    "sk-proj-abcDEF123abcDEF123abcDEF123",
    "ghp_" + "a1B2" * 9,
    "gho_" + "a1B2" * 9,
    "github_pat_" + "a1B2_" * 10,
    "glpat-" + "a1B2_" * 4,
    "AKIA" + "A1B2" * 4,
    "AIza" + "a1B2-" * 7,
    "xoxb-1234567890-abcdefghij",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
)


def shown(pieces: list[bytes], secrets: SecretValues = SECRETS) -> tuple[str, int]:
    redactor = Redactor(secrets)
    out = b"".join(map(redactor.feed, pieces)) + redactor.flush()
    return out.decode(), redactor.count


def cut(text: bytes, *ats: int) -> list[bytes]:
    return [text[begin:end] for begin, end in zip((0, *ats), (*ats, len(text)), strict=True)]


@pytest.mark.parametrize(
    "form",
    [
        KEY,
        json.dumps(KEY)[1:-1],
        json.dumps(KEY, ensure_ascii=False)[1:-1],
        quote(KEY, safe=""),
        quote_plus(KEY),
    ],
)
def test_a_variable_of_the_run_is_found_in_every_form_and_wherever_it_is_cut(form: str) -> None:
    whole = f"key={form}; and more".encode()

    for at in range(len(whole) + 1):
        assert shown(cut(whole, at)) == ("key=[redacted]; and more", 1)
    assert shown([whole[at : at + 1] for at in range(len(whole))]) == ("key=[redacted]; and more", 1)


@pytest.mark.parametrize("before", ["", "a", "ab", "user:"])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_it_is_found_in_base64_whatever_stands_beside_it(before: str, encode: object) -> None:
    assert callable(encode)
    encoded = encode(f"{before}{KEY}after".encode())

    text, count = shown([encoded, b"\n"])

    assert count == 1
    assert len(text) - len("[redacted]\n") <= len(encoded) - 4 * (len(KEY.encode()) - 2) // 3


def test_it_is_found_in_lines_of_base64() -> None:
    key = "a-long-key-" * 12
    encoded = base64.encodebytes(key.encode())

    text, _ = shown([encoded], SecretValues.of({"KEY": key}))

    assert text.startswith("[redacted]\n[redacted]\n")


def test_each_line_of_a_key_that_has_several_is_secret() -> None:
    lines = [f"{number}" * 40 for number in range(5)]
    pem = "\n".join(["-----BEGIN KEY-----", *lines, "-----END KEY-----", ""])
    secrets = SecretValues.of({"DEPLOY_KEY": pem})

    assert shown([f"| {line}\n".encode() for line in lines], secrets) == ("| [redacted]\n" * 5, 5)
    assert "00000000" not in shown([json.dumps(pem).encode()], secrets)[0]


@pytest.mark.parametrize("token", TOKENS)
def test_what_looks_like_a_token_is_replaced_wherever_it_is_cut(token: str) -> None:
    whole = f"It is {token}, they say".encode()
    expected = ("It is [redacted], they say", 1)

    for at in range(len(whole) + 1):
        assert shown(cut(whole, at)) == expected
    assert shown([whole[at : at + 1] for at in range(len(whole))]) == expected
    assert shown([token.encode()]) == ("[redacted]", 1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("redis://joe:hunter2@host/0", "redis://joe:[redacted]@host/0"),
        ("postgres://:hunter2@host", "postgres://:[redacted]@host"),
        (
            "https://x:ghx@github.com/a.git and http://a:b@c",
            "https://x:[redacted]@github.com/a.git and http://a:[redacted]@c",
        ),
    ],
)
def test_the_password_of_an_address_is_replaced_wherever_it_is_cut(text: str, expected: str) -> None:
    for at in range(len(text) + 1):
        assert shown(cut(text.encode(), at))[0] == expected


@pytest.mark.parametrize(
    "text",
    [
        "http://localhost:8080/path@2 https://example.org/a:b@c",
        "task-list-0123456789-0123456789-abc",
        "the sk-learn-like-names-of-packages-without-numbers",
        "eyJhbGciOiJIUzI1NiJ9 alone, and eyJ.eyJ.",
        "BAKIAABCDEFGHIJKLMNOPQRS",
        "ghp_short github_pat_short xoxb-short AIzaShort sk- :// @",
    ],
)
def test_what_only_resembles_a_secret_stays_wherever_it_is_cut(text: str) -> None:
    for at in range(len(text) + 1):
        assert shown(cut(text.encode(), at)) == (text, 0)


@pytest.mark.parametrize(
    ("name", "value", "secret"),
    [
        ("ANTHROPIC_API_KEY", "abcdefgh", True),
        ("apikey", "abcdefgh", True),
        ("GITHUB_TOKEN", "abcdefgh", True),
        ("DB_PASSWORD", "abcdefgh", True),
        ("MY_SECRET_THING", "abcdefgh", True),
        ("SOME_CREDENTIALS", "abcdefgh", True),
        ("DATABASE_URL", "mysql://joe:abcdefgh@host/db", True),
        ("PLAIN", "abcdefgh", False),
        ("MONKEY", "abcdefgh", False),
        ("KEYBOARD", "abcdefgh", False),
        ("MAX_OUTPUT_TOKENS", "abcdefgh", False),
        ("PWD", "abcdefgh", False),
        ("SHORT_KEY", "abcdefg", False),
        ("AWS_ACCESS_KEY_ID", "abcdefgh", False),
        ("SSL_KEY", "/dev/null", False),
    ],
)
def test_a_variable_is_secret_by_its_name(name: str, value: str, secret: bool) -> None:
    text = "abcdefgh /dev/null abcdefg"

    assert (shown([text.encode()], SecretValues.of({name: value}))[1] == 1) is secret


def test_a_run_can_name_more() -> None:
    secrets = SecretValues.of({"AGENTQ_SECRETS": "FIRST, SECOND", "FIRST": "abcdefgh", "SECOND": "ijklmnop"})

    assert shown([b"abcdefgh ijklmnop"], secrets) == ("[redacted] [redacted]", 2)


def test_of_two_that_begin_alike_the_longer_is_replaced() -> None:
    secrets = SecretValues.of({"A_KEY": "abcdefgh", "B_KEY": "abcdefghijkl"})

    for at in range(12):
        assert shown(cut(b"abcdefghijkl", at), secrets) == ("[redacted]", 1)
    assert shown([b"abcdefgh"], secrets) == ("[redacted]", 1)
    assert shown([b"abcdefgh", b"ij"], secrets)[0] == "[redacted]ij"


def test_a_line_that_has_ended_does_not_wait() -> None:
    redactor = Redactor(SECRETS)

    assert redactor.feed(b"sk-\n") == b"sk-\n"
    assert redactor.feed(b"pa\n") == b"pa\n"


def test_little_is_held_of_a_flood_that_may_be_a_secret() -> None:
    redactor, size = Redactor(SECRETS), 0
    for _ in range(1000):
        size += len(redactor.feed(b"eyJ" + b"a" * 97))
        assert len(redactor._held) <= PATTERN_BYTES_MAX

    assert size + len(redactor.flush()) == 100_000


def test_the_rest_of_a_token_without_end_goes_with_it() -> None:
    redactor = Redactor(SECRETS)
    text = redactor.feed(b"sk-ant-0123456789abcdefghij") + b"".join(redactor.feed(b"a" * 1000) for _ in range(100))

    assert text + redactor.feed(b" end\n") == b"[redacted] end\n"


def test_texts_within_a_value_are_looked_through_too() -> None:
    value: JsonValue = {"a": [1, None, f"it is {KEY}"], "ghp_" + "a" * 36: {"deep": "sk-ant-0123456789abcdefghij"}}
    redactor = Redactor(SECRETS)

    assert redactor.value(value) == {"a": [1, None, "it is [redacted]"], "[redacted]": {"deep": "[redacted]"}}
    assert redactor.count == 3
    assert redactor.value("half \ud83d") == "half \ud83d"


@pytest.mark.parametrize("seed", range(30))
def test_it_is_the_same_however_a_stream_is_cut(seed: int) -> None:
    """Lines of secrets, halves of secrets and other words, cut anywhere, come out as if each had come whole."""
    chance = random.Random(seed)
    words = [
        *TOKENS,
        KEY,
        *(token[: chance.randrange(1, len(token))] for token in TOKENS),
        "redis://a:b@c",
        "plain",
        ":",
    ]
    text = "\n".join(" ".join(chance.choices(words, k=chance.randrange(6))) for _ in range(40)).encode() + b"\n"
    ats = sorted(chance.sample(range(len(text)), chance.randrange(1, 200)))

    assert shown(cut(text, *ats)) == shown(text.splitlines(keepends=True))


class Counting:
    """A pattern that counts how often it is tried."""

    def __init__(self, pattern: re.Pattern[bytes]) -> None:
        self._pattern = pattern
        self.tries = 0

    def match(self, text: bytes, at: int) -> re.Match[bytes] | None:
        self.tries += 1
        return self._pattern.match(text, at)


@pytest.mark.parametrize("rest", [b"", b" ", b".eyJshort!"])
def test_letters_in_which_many_tokens_could_begin_are_followed_once(
    rest: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To follow each to the end of the letters takes the worker's loop away for a tenth of a second."""
    whole, goes_on = Counting(secret_patterns._PATTERNS_BY_PREFIX[b"eyJ"]), Counting(redaction._SECRET_LETTERS[b"eyJ"])
    monkeypatch.setitem(secret_patterns._PATTERNS_BY_PREFIX, b"eyJ", whole)
    monkeypatch.setitem(redaction._SECRET_LETTERS, b"eyJ", goes_on)
    piece = b"_eyJ" * (PATTERN_BYTES_MAX // 5) + rest

    assert shown([piece]) == (piece.decode(), 0)
    assert whole.tries == 0
    assert goes_on.tries <= 2
