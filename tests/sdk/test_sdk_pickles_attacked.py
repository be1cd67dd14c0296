"""What comes as a pickle and is not signed for its function by a key of ours is not opened, whatever it looks like."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
from pathlib import Path
from typing import Any

import pytest

from agentq.coordinator.errors import Invalid, NotAllowed
from agentq.sdk.functions.pickles import KEY_VARIABLE, is_signed_pickle, load_signed_pickle, sign_pickle

KEY, OTHER_KEY = "k" * 32, "o" * 32
PATH = "shop:send"


class Bomb:
    """Leaves a mark where it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.mark),)


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    return sign_pickle(Bomb(tmp_path / "opened"), PATH)


def signature(key: str, path: str, body: bytes) -> str:
    return hmac.new(key.encode(), path.encode() + b"\0" + body, hashlib.sha256).hexdigest()


def forge(text: str) -> dict[str, str]:
    """All that an attacker could send who has a pickle, the signature of another, and other keys."""
    record = json.loads(text)
    body = base64.b64decode(record["$pickle"])
    good = record["hmac"]
    signatures: dict[str, Any] = {
        "empty": "",
        "half": good[:32],
        "longer": good + "0",
        "upper": good.upper(),
        "spaces": f" {good}",
        "no letters": "\u00e9" * 64,
        "half a character": "\ud800" * 64,
        "other digits": "\uff11" * 64,
        "null": None,
        "list": [good],
        "number": 0,
        "true": True,
        "object": {"hmac": good},
        "huge": "0" * 2_000_000,
        "another key": signature(OTHER_KEY, PATH, body),
        "another path": signature(KEY, "shop:other", body),
        "no path": signature(KEY, "", body),
        "part of the path": signature(KEY, PATH[:-1], body),
        "a digest without a key": hashlib.sha256(body).hexdigest(),
        "the empty key": signature("", PATH, body),
    }
    forged = {name: json.dumps({"$pickle": record["$pickle"], "hmac": each}) for name, each in signatures.items()}
    bodies = {
        "no base64": "!!!!",
        "another body": base64.b64encode(body + b".").decode(),
        "null body": None,
        "list body": [record["$pickle"]],
        "number body": 7,
        "huge body": "A" * 4_000_000,
        "no letters in it": "\u00e9",
        "nothing": "",
    }
    forged |= {name: json.dumps({"$pickle": each, "hmac": good}) for name, each in bodies.items()}
    return forged | {
        "without": json.dumps({"$pickle": record["$pickle"]}),
        "deep": '{"$pickle":' + "[" * 200_000,
        "deep and whole": '{"$pickle":' + "[" * 200_000 + "]" * 200_000 + ', "hmac": ""}',
        "cut off": text[:-5],
        "twice": f'{{"$pickle": "", "hmac": "{good}", "$pickle": "gASVAAAAAAAAAC4="}}',
        "list": "[]",
        "text": '"$pickle"',
        "number": "1e999",
        "nothing at all": "",
    }


def test_what_is_not_signed_for_the_function_is_refused_in_a_sentence(text: str, tmp_path: Path) -> None:
    forged = forge(text)
    for each in forged.values():
        with pytest.raises((Invalid, NotAllowed), match="pickle"):
            load_signed_pickle(each, PATH)
    with pytest.raises(NotAllowed):
        load_signed_pickle(text, "shop:other")

    assert len(forged) >= 35
    assert not (tmp_path / "opened").exists()
    load_signed_pickle(text, PATH)
    assert (tmp_path / "opened").exists(), "what is signed is opened"


def test_whether_a_text_is_a_pickle_is_told_of_every_text(text: str) -> None:
    assert is_signed_pickle(text)
    begun = {name: each for name, each in forge(text).items() if each.startswith('{"$pickle"')}
    assert [name for name, each in begun.items() if not is_signed_pickle(each)] == [
        *("without", "deep", "deep and whole", "cut off")
    ]
