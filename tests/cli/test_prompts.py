"""Where a prompt comes from, and what is none."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from agentq.cli.parse.prompt import read_prompt
from agentq.coordinator.bounds import PROMPT_BYTES
from agentq.coordinator.errors import Invalid


@pytest.fixture
def comes_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("mend\n the tests ✓".encode())))


def test_words_are_one_prompt() -> None:
    assert read_prompt(["mend", "the  tests"], None) == "mend the  tests"


@pytest.mark.usefixtures("comes_in")
def test_a_dash_is_stdin_and_nothing_of_it_is_lost() -> None:
    assert read_prompt(["-"], None) == "mend\n the tests ✓"


@pytest.mark.usefixtures("comes_in")
def test_a_file_of_a_dash_is_stdin_too() -> None:
    assert read_prompt([], "-") == "mend\n the tests ✓"


def test_a_file_is_read_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "prompt.md").write_bytes(b"# one\r\n\ttwo\n")

    assert read_prompt([], str(tmp_path / "prompt.md")) == "# one\r\n\ttwo\n"


def test_the_longest_prompt_passes(tmp_path: Path) -> None:
    (tmp_path / "most").write_text("x" * PROMPT_BYTES)

    assert len(read_prompt([], str(tmp_path / "most"))) == PROMPT_BYTES


@pytest.mark.parametrize(
    ("words", "file", "why"),
    [
        ([], None, "There is no prompt; write what the agent is to do"),
        (["a"], "b", "contradict each other"),
        ([" \n", "\t"], None, "the prompt is empty"),
        (["x" * (PROMPT_BYTES + 1)], None, f"The prompt has {PROMPT_BYTES + 1} bytes; {PROMPT_BYTES} is the most"),
        (["a\udcff"], None, "not valid UTF-8"),
        ([], "blank", "blank is empty"),
        ([], "long", f"gives more than {PROMPT_BYTES} bytes"),
        ([], "latin", "takes text in UTF-8, and latin is something else"),
        ([], "nowhere", "cannot read nowhere"),
    ],
)
def test_what_is_no_prompt_is_refused_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], file: str | None, why: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("blank").write_text(" \n")
    Path("long").write_text("x" * (PROMPT_BYTES + 1))
    Path("latin").write_bytes(b"\xe4\xff")

    with pytest.raises(Invalid, match=why):
        read_prompt(words, file)
