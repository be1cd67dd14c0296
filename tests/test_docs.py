"""What the docs say is what the code does."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.generated_docs import PAGES, PARTS, ROOT, every_command, generated

from agentq.cli.main import COMMANDS
from agentq.coordinator import errors
from agentq.coordinator.config.server_settings import ServerSettings
from agentq.coordinator.config.settings import VARIABLE_PREFIX, Settings, WorkerSettings
from agentq.coordinator.model.lifecycle import TRANSITIONS, VERBS
from agentq.coordinator.storage.keys import KEY_KINDS
from agentq.coordinator.storage.scripts import SCRIPTS

PROTOCOL = (ROOT / "coordinator/README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES)
def test_the_generated_parts_are_up_to_date(page: str) -> None:
    """If this fails: python tests/support/generated_docs.py."""
    text = (ROOT / page).read_text(encoding="utf-8")

    assert generated(text) == text


def test_every_generated_part_is_used() -> None:
    pages = "".join((ROOT / page).read_text(encoding="utf-8") for page in PAGES)

    assert [name for name in PARTS if f"<!-- generated: {name} -->" not in pages] == []


@pytest.mark.parametrize(
    "word",
    [key.pattern.replace("<", "‹").replace(">", "›") for key in KEY_KINDS]
    + list(VERBS)
    + [row.event for row in TRANSITIONS]
    + list(SCRIPTS)
    + list(errors.REFUSALS)
    + [VARIABLE_PREFIX + name.upper() for name in Settings.model_fields]
    + [f"{VARIABLE_PREFIX}WORKER_{name.upper()}" for name in WorkerSettings.model_fields],
)
def test_every_key_verb_event_script_reply_and_setting_is_documented(word: str) -> None:
    assert f"`{word}`" in PROTOCOL


@pytest.mark.parametrize("name", ServerSettings.model_fields)
def test_every_setting_of_the_server_is_documented(name: str) -> None:
    page = (ROOT / "coordinator/agentq/server/README.md").read_text(encoding="utf-8")

    assert f"`{VARIABLE_PREFIX}SERVER_{name.upper()}`" in page


def test_every_word_that_a_script_replies_is_understood() -> None:
    """A reply is `ok`, a word of `errors.WORDS`, or one that its caller reads; see the scripts' headers."""
    read_by_callers = {"ok", "exists", "not_paused"}
    for script in SCRIPTS.values():
        if script.header.reply[0] in "[n":
            replies = re.findall(r"\b(evicted|draining|lease_expired|duplicate|releasing_runs)\b", script.header.reply)
        else:
            replies = [reply.split()[0] for reply in script.header.reply.removeprefix("per run: ").split(", ")]
        assert set(replies) <= read_by_callers | errors.REFUSALS.keys(), script.name


def test_every_reply_in_a_script_is_in_its_header() -> None:
    for script in SCRIPTS.values():
        body = script.text.partition("]]")[2]
        for word in errors.REFUSALS:
            if re.search(rf"(return|word =|or) '{word}['\s]", body):
                assert word in script.header.reply, f"{script.name} answers {word} and its header does not say so"


def test_every_command_is_documented_and_has_an_example() -> None:
    page = (ROOT / "cli/README.md").read_text(encoding="utf-8")
    for name, command in every_command():
        assert f"`agentq {name}`" in page
        if name not in ("queue", "limit", "token", "webhook"):  # which do nothing by themselves
            assert f"Example: agentq {name}" in f"{command.help} {command.epilog}"


def test_every_module_of_a_command_is_in_the_list_that_help_shows() -> None:
    """Commands are imported late, so the list stands apart from them; nobody may be missing from it."""
    listed = {name: line for section in COMMANDS.values() for name, line in section.items()}
    for path in (ROOT / "cli/agentq/cli").glob("*.py"):
        if path.read_text(encoding="utf-8").startswith(f'"""`agentq {path.stem}`'):
            assert path.stem in listed
    for name, command in every_command():
        if name in listed:
            assert command.help.startswith(listed[name].rstrip("."))


STOP = "from agentq.coordinator.storage.embedded import EmbeddedServer; EmbeddedServer().stop()"


@pytest.mark.full("takes 3 s")
@pytest.mark.parametrize("page", ["README.md", "coordinator/README.md"])
def test_the_python_in_the_docs_runs(page: str, valkey_url: str, fresh_home: dict[str, str], tmp_path: Path) -> None:
    """A block that begins with `# name.py` is a file beside the others."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for code in [*re.findall(r"```python\n(.*?)```", text, re.DOTALL), STOP]:
        if named := re.match(r"# (\w+\.py)\n", code):
            (tmp_path / named[1]).write_text(code)
            continue
        program = code.replace("redis://localhost", valkey_url)
        done = subprocess.run(
            [sys.executable, "-c", program], env=fresh_home, cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr


PLACES = ("coordinator", "worker", "cli", "deploy", "tests")


def test_each_line_of_the_security_page_has_a_test_that_holds_it() -> None:
    """Of each who is trusted with something, of secrets and of a leaked token: a test that is there, by its name."""
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    trusted = re.findall(r"^\| ([^|(]+?)(?: \(.*?\))? \|(?:[^|]+\|){3}$", text, re.MULTILINE)[1:]
    tested = re.findall(r"^\| ([^|]+) \| [^|]+ \| `(.+)::(\w+)` \|$", text, re.MULTILINE)

    assert len(trusted) > 5
    assert {who for who, _, _ in tested} == {*trusted, "secrets", "a leaked token"}
    for _, path, name in tested:
        assert f"\ndef {name}(" in (ROOT / path).read_text(encoding="utf-8"), f"there is no {path}::{name}"


def test_every_link_in_the_docs_leads_somewhere() -> None:
    for path in [
        ROOT / "README.md",
        ROOT / "SECURITY.md",
        *(path for folder in PLACES for path in sorted((ROOT / folder).rglob("*.md"))),
    ]:
        for target in re.findall(r"\]\(([^)#]+)\)", path.read_text(encoding="utf-8")):
            assert (path.parent / target).exists(), f"{path} links to {target}"
