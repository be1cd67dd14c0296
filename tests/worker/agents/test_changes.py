"""Whether anything was changed, on real repositories, of which some are hostile."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from agentq.worker.agents import tree_fingerprint
from agentq.worker.agents.tree_fingerprint import Fingerprint

AS = ("-c", "user.name=T", "-c", "user.email=t@example.com", "-c", "init.defaultBranch=main")


def git(folder: Path, *words: str) -> None:
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(["git", *AS, *words], cwd=folder, env=environment, check=True, capture_output=True)


def commit(folder: Path, **files: str) -> None:
    for name, text in files.items():
        (folder / name).write_text(text)
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "x", "--allow-empty")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / ".gitignore").write_text("*.log\n")
    commit(folder, a="one\n", b="two\n")
    return folder


def look(folder: Path) -> Fingerprint:
    found = asyncio.run(Fingerprint.of(folder))
    assert found is not None
    return found


def since(after: Fingerprint, before: Fingerprint) -> list[str]:
    return asyncio.run(after.changed_since(before))


def test_a_tree_that_nobody_touched_is_the_same(repository: Path) -> None:
    (repository / "new").write_text("x")

    assert look(repository) == look(repository)
    assert since(look(repository), look(repository)) == []


def test_a_fingerprint_is_noted_and_read_again(repository: Path, tmp_path: Path) -> None:
    (repository / "ne\udcffw").write_text("x")
    before = look(repository)
    before.write(tmp_path / "notes" / "before")

    assert Fingerprint.read(tmp_path / "notes" / "before") == before == look(repository)


@pytest.mark.parametrize("noted", ["", "{", "[]", "{}", '{"top":"/","head":"x","entries":[],"more":""}', "null", "é"])
def test_a_note_that_cannot_be_read_is_none(noted: str, tmp_path: Path) -> None:
    (tmp_path / "before").write_text(noted, encoding="utf-8")

    assert Fingerprint.read(tmp_path / "before") is None
    assert Fingerprint.read(tmp_path / "missing") is None


def test_each_kind_of_change_is_seen_and_named(repository: Path) -> None:
    before = look(repository)
    (repository / "a").write_text("other\n")
    (repository / "b").unlink()
    (repository / "sub").mkdir()
    (repository / "sub" / "new file\n.txt").write_text("x")
    after = look(repository)

    assert after != before
    assert since(after, before) == ["a", "b", "sub/new file\n.txt"]


def test_a_file_that_differed_before_is_seen_to_change_again(repository: Path) -> None:
    (repository / "a").write_text("mine\n")
    (repository / "new").write_text("mine\n")
    before = look(repository)
    (repository / "a").write_text("hers\n")
    (repository / "new").write_text("hers\n")

    assert since(look(repository), before) == ["a", "new"]


def test_a_file_that_is_written_as_it_was_is_no_change(repository: Path) -> None:
    (repository / "new").write_text("mine\n")
    before = look(repository)
    (repository / "a").write_text("one\n")
    (repository / "new").write_text("mine\n")
    os.utime(repository / "a", (1, 1))

    assert look(repository) == before


def test_ignored_files_are_no_change(repository: Path) -> None:
    before = look(repository)
    (repository / "x.log").write_text("x")

    assert look(repository) == before


def test_a_commit_is_a_change_in_the_files_that_it_changed(repository: Path) -> None:
    (repository / "a").write_text("mine\n")
    before = look(repository)
    commit(repository, c="three\n")
    after = look(repository)

    assert after != before
    assert after.entries == {}
    assert since(after, before) == ["a", "c"]


def test_a_mode_and_a_link_are_changes(repository: Path) -> None:
    before = look(repository)
    (repository / "a").chmod(0o755)
    (repository / "link").symlink_to("/etc/passwd")
    one = look(repository)
    (repository / "link").unlink()
    (repository / "link").symlink_to("/etc/hostname")

    assert since(one, before) == ["a", "link"]
    assert since(look(repository), one) == ["link"]


def test_a_repository_without_a_commit_has_a_fingerprint(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    before = look(tmp_path)
    (tmp_path / "a").write_text("x")

    assert since(look(tmp_path), before) == ["a"]
    one = look(tmp_path)
    commit(tmp_path)
    assert since(look(tmp_path), one) == ["a"]


def test_a_folder_within_a_repository_is_looked_at_with_all_of_it(repository: Path) -> None:
    (repository / "sub").mkdir()
    before = look(repository / "sub")
    (repository / "a").write_text("x")

    assert since(look(repository / "sub"), before) == ["a"]


def test_a_linked_worktree_is_a_tree_of_its_own(repository: Path, tmp_path: Path) -> None:
    git(repository, "worktree", "add", "-q", str(tmp_path / "other"))
    before, main = look(tmp_path / "other"), look(repository)
    (tmp_path / "other" / "a").write_text("x")

    assert since(look(tmp_path / "other"), before) == ["a"]
    assert look(repository) == main


def test_a_change_within_a_submodule_is_a_change(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "library").mkdir()
    git(tmp_path / "library", "init", "-q")
    commit(tmp_path / "library", l="x")
    git(repository, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(tmp_path / "library"), "lib")
    commit(repository)
    before = look(repository)
    assert look(repository) == before
    (repository / "lib" / "l").write_text("y")

    assert since(look(repository), before) == ["lib"]


def test_a_repository_that_is_new_within_is_looked_into(repository: Path) -> None:
    (repository / "inner").mkdir()
    git(repository / "inner", "init", "-q")
    (repository / "inner" / "x").write_text("1")
    before = look(repository)
    (repository / "inner" / "x").write_text("2")

    assert since(look(repository), before) == ["inner/"]


def test_outside_of_git_there_is_none(tmp_path: Path) -> None:
    assert asyncio.run(Fingerprint.of(tmp_path)) is None
    assert asyncio.run(Fingerprint.of(tmp_path / "missing")) is None


def test_a_broken_repository_has_none(repository: Path) -> None:
    (repository / ".git" / "HEAD").write_text("nonsense")

    assert asyncio.run(Fingerprint.of(repository)) is None


def test_nothing_that_a_hostile_repository_asks_for_is_run(repository: Path, tmp_path: Path) -> None:
    """Each of these would write a file, if git ran it."""
    trap = tmp_path / "trap"
    trap.mkdir()

    def program(name: str) -> str:
        path = tmp_path / f"{name}.sh"
        path.write_text(f"#!/bin/sh\ntouch {trap}/{name}\ncat\n")
        path.chmod(0o755)
        return str(path)

    (repository / ".gitattributes").write_text("* filter=evil diff=evil\n*.x filter=evil.dotted\n*.y filter=e=v\n")
    commit(repository, y="x", **{"q.y": "x"})
    for key, name in {
        "filter.evil.clean": "clean",
        "filter.evil.dotted.clean": "dotted",
        "filter.e=v.clean": "equals",
        "filter.evil.process": "process",
        "filter.evil.required": "true",
        "core.fsmonitor": "fsmonitor",
        "diff.external": "external",
        "diff.evil.textconv": "textconv",
        "core.pager": "pager",
        "core.sshCommand": "ssh",
        "remote.origin.url": "remote",
    }.items():
        value = name if name == "true" else program(name)
        git(repository, "config", key, f"ext::{value}" if name == "remote" else value)
    git(repository, "config", "remote.origin.promisor", "true")
    for hook in ("post-index-change", "fsmonitor-watchman", "pre-commit"):
        (repository / ".git" / "hooks" / hook).write_text(f"#!/bin/sh\ntouch {trap}/hook\n")
        (repository / ".git" / "hooks" / hook).chmod(0o755)
    before = look(repository)
    for name in ("a", "b", "q.x", "q.y"):
        (repository / name).write_text("changed\n")
    after = look(repository)

    assert since(after, before) == ["a", "b", "q.x", "q.y"]
    assert sorted(trap.iterdir()) == []


def test_a_repository_that_says_that_its_files_are_elsewhere_is_not_believed(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    git(repository, "config", "core.worktree", str(tmp_path / "elsewhere"))
    before = look(repository)
    (repository / "a").write_text("x")

    assert before.entries == {}
    assert since(look(repository), before) == ["a"]


def test_looking_writes_nothing(repository: Path) -> None:
    os.utime(repository / "a", (1, 1))
    index = (repository / ".git" / "index").stat().st_mtime_ns
    look(repository)

    assert (repository / ".git" / "index").stat().st_mtime_ns == index
    assert not (repository / ".git" / "index.lock").exists()


def test_the_variables_of_the_worker_lead_nobody_astray(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = look(repository)
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "nowhere"))

    assert look(repository) == expected


def test_a_pipe_in_the_tree_does_not_hold_anybody_up(repository: Path) -> None:
    os.mkfifo(repository / "pipe")
    (repository / "a").unlink()
    os.mkfifo(repository / "a")

    assert "a" in look(repository).entries


@pytest.mark.full("takes 10 s")
def test_a_git_that_does_not_answer_is_left(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "git").write_text("#!/bin/sh\nexec sleep 1000\n")
    (tmp_path / "bin" / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")

    assert asyncio.run(Fingerprint.of(repository, timeout_s=0.2)) is None


def test_more_changes_than_are_kept_are_still_told_apart(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_fingerprint, "ENTRIES_MAX", 3)
    for number in range(9):
        (repository / f"n{number}").write_text("x")
    before = look(repository)
    (repository / "n8").write_text("y")

    assert len(before.entries) == 3
    assert look(repository) != before


def test_a_large_file_is_known_by_its_size_and_time(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_fingerprint, "HASHED_BYTES_MAX", 10)
    (repository / "large").write_text("x" * 100)
    before = look(repository)
    assert look(repository) == before
    (repository / "large").write_text("x" * 101)

    assert since(look(repository), before) == ["large"]
