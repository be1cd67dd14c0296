"""Conversations on disk: found, packed, and put down on another host, and nowhere else."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from agentq.coordinator.errors import Invalid
from agentq.worker.agents import transcripts
from agentq.worker.agents.profiles.registry import ProfileRegistry
from agentq.worker.agents.transcripts import pack_transcript, restore_transcript

PROFILES = ProfileRegistry.load({"HOME": "/nonexistent"}, Path("/nonexistent"))
CLAUDE = PROFILES.get("claude")
SESSION = "0b1ef6b2-5f2b-4d60-9a0f-0d6f3a3c1d11"
SAID = b'{"type":"user"}\n\x00\xff not all of it is text\n'


def host(folder: Path) -> dict[str, str]:
    (folder / ".claude/projects").mkdir(parents=True)
    return {"HOME": str(folder)}


def kept(home: dict[str, str], slug: str = "-srv-repo", body: bytes = SAID) -> Path:
    path = Path(home["HOME"], ".claude/projects", slug, f"{SESSION}.jsonl")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(body)
    return path


def body_of(*path: str, version: int = 1) -> bytes:
    return json.dumps({"v": version, "path": path}).encode() + b"\n" + SAID


def test_a_conversation_goes_on_where_another_host_has_put_it(tmp_path: Path) -> None:
    here, there = host(tmp_path / "here"), {"HOME": str(tmp_path / "there")}
    kept(here)

    body = pack_transcript(CLAUDE, here, SESSION)
    assert body is not None
    path = restore_transcript(CLAUDE, there, SESSION, body)

    assert path == tmp_path / "there/.claude/projects/-srv-repo" / f"{SESSION}.jsonl"
    assert path.read_bytes() == SAID
    assert path.stat().st_mode & 0o777 == 0o600
    assert transcripts.find_transcripts(CLAUDE, there, SESSION) == [path]


def test_the_newest_of_several_files_is_the_conversation(tmp_path: Path) -> None:
    here = host(tmp_path)
    old, new = kept(here, "-old", b"old\n"), kept(here, "-new", b"new\n")
    os.utime(old, (1, 1))

    assert transcripts.find_transcripts(CLAUDE, here, SESSION) == [new, old]
    assert (pack_transcript(CLAUDE, here, SESSION) or b"").endswith(b"\nnew\n")


def test_the_line_that_the_agent_is_just_writing_stays(tmp_path: Path) -> None:
    here = host(tmp_path)
    kept(here, body=SAID + b'{"type":"assist')

    assert (pack_transcript(CLAUDE, here, SESSION) or b"").endswith(SAID)


def test_an_older_copy_is_replaced_as_a_whole(tmp_path: Path) -> None:
    here = host(tmp_path)
    path = kept(here, body=b"an older and longer one" * 100)

    restore_transcript(CLAUDE, here, SESSION, body_of("-srv-repo", f"{SESSION}.jsonl"))

    assert path.read_bytes() == SAID
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_the_place_is_where_the_agents_own_variables_say(tmp_path: Path) -> None:
    home = {"HOME": "/nonexistent", "CLAUDE_CONFIG_DIR": str(tmp_path / "[work]*")}
    path = restore_transcript(CLAUDE, home, SESSION, body_of("p", f"{SESSION}.jsonl"))

    assert path.is_relative_to(tmp_path / "[work]*")
    assert transcripts.find_transcripts(CLAUDE, home, SESSION) == [path]


def test_codex_keeps_a_date_in_its_place(tmp_path: Path) -> None:
    name = f"rollout-2026-11-18T10-00-00-{SESSION}.jsonl"
    home = {"HOME": str(tmp_path)}

    path = restore_transcript(PROFILES.get("codex"), home, SESSION, body_of("2026", "11", "18", name))

    assert path == tmp_path / ".codex/sessions/2026/11/18" / name
    assert pack_transcript(PROFILES.get("codex"), home, SESSION) == body_of("2026", "11", "18", name)


@pytest.mark.parametrize(
    "path",
    [
        ("..", f"{SESSION}.jsonl"),
        ("p", "..", f"{SESSION}.jsonl"),
        ("/etc", f"{SESSION}.jsonl"),
        ("a/../../..", f"{SESSION}.jsonl"),
        ("p", "settings.json"),
        ("p", f"{SESSION}.jsonl\n"),
        ("p",),
        (),
        ("", f"{SESSION}.jsonl"),
    ],
)
def test_a_packed_conversation_goes_nowhere_else(tmp_path: Path, path: tuple[str, ...]) -> None:
    here = host(tmp_path)

    with pytest.raises(Invalid, match="is not where its agent looks"):
        restore_transcript(CLAUDE, here, SESSION, body_of(*path))

    assert [file for file in tmp_path.rglob("*") if file.is_file()] == []


@pytest.mark.parametrize("body", [b"", b"\n", b"{}\n", b"[1]\nx", b'{"v":1,"path":[3]}\nx', body_of("p", version=2)])
def test_what_is_no_packed_conversation_is_refused(tmp_path: Path, body: bytes) -> None:
    with pytest.raises(Invalid, match="packed by another version of agentq, or is broken"):
        restore_transcript(CLAUDE, host(tmp_path), SESSION, body)


def test_no_link_below_the_agents_folder_is_followed(tmp_path: Path) -> None:
    here, outside = host(tmp_path / "here"), tmp_path / "outside"
    outside.mkdir()
    (outside / f"{SESSION}.jsonl").write_text("secret")
    (tmp_path / "here/.claude/projects/-srv-repo").symlink_to(outside)

    assert pack_transcript(CLAUDE, here, SESSION) is None
    with pytest.raises(Invalid, match="cannot be put here"):
        restore_transcript(CLAUDE, here, SESSION, body_of("-srv-repo", f"{SESSION}.jsonl"))
    assert (outside / f"{SESSION}.jsonl").read_text() == "secret"


def test_a_linked_file_is_not_packed_and_is_replaced_rather_than_written_through(tmp_path: Path) -> None:
    here = host(tmp_path / "here")
    (tmp_path / "secret").write_text("secret")
    path = kept(here)
    path.unlink()
    path.symlink_to(tmp_path / "secret")

    assert pack_transcript(CLAUDE, here, SESSION) is None
    restore_transcript(CLAUDE, here, SESSION, body_of("-srv-repo", f"{SESSION}.jsonl"))
    assert (tmp_path / "secret").read_text() == "secret"
    assert not path.is_symlink()


def test_a_fifo_in_the_place_of_a_conversation_holds_nobody_up(tmp_path: Path) -> None:
    here = host(tmp_path)
    path = kept(here)
    path.unlink()
    os.mkfifo(path)

    assert pack_transcript(CLAUDE, here, SESSION) is None


def test_a_conversation_that_is_too_long_to_travel_stays(tmp_path: Path) -> None:
    here = host(tmp_path)
    os.truncate(kept(here), transcripts.PACKAGE_BYTES_MAX + 1)

    assert pack_transcript(CLAUDE, here, SESSION) is None


@pytest.mark.parametrize("session", ["*", "../x", "a/b", "", "-x", "[a]", "x\n"])
def test_what_is_no_name_of_a_conversation_finds_none(tmp_path: Path, session: str) -> None:
    here = host(tmp_path)
    kept(here)

    assert transcripts.find_transcripts(CLAUDE, here, session) == []
    assert pack_transcript(CLAUDE, here, session) is None
    with pytest.raises(Invalid, match="keeps none that travels"):
        restore_transcript(CLAUDE, here, session, body_of("p", f"{session}.jsonl"))


def test_an_agent_that_says_no_place_keeps_its_conversations_where_they_are(tmp_path: Path) -> None:
    assert pack_transcript(PROFILES.get("gemini"), {"HOME": str(tmp_path)}, SESSION) is None
