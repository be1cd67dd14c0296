"""Whatever a run puts in the place of git's own files, its work is committed or refused, and other runs go on."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.repositories import Depot
from support.workspaces import Workshop

from agentq.coordinator.errors import AgentqError
from agentq.worker.workspace.git.git_command import Git
from agentq.worker.workspace.git.git_files import read_text, remove_path, remove_tree
from agentq.worker.workspace.git.safe_config import SafeGitConfig

BINARY = b"\xff\xfe\x00"
DEPTH = 1_100
Tampering = Callable[[Path, Path], object]


def in_folder(name: str, file: str, content: bytes) -> Tampering:
    def tamper(git_dir: Path, _: Path) -> None:
        (git_dir / name).mkdir()
        (git_dir / name / file).write_bytes(content)

    return tamper


TAMPERINGS: dict[str, Tampering] = {
    "binary MERGE_HEAD": lambda git_dir, _: (git_dir / "MERGE_HEAD").write_bytes(BINARY),
    "an option as MERGE_HEAD": lambda git_dir, _: (git_dir / "MERGE_HEAD").write_text("-F/etc/passwd\n"),
    "binary BISECT_START": lambda git_dir, _: (git_dir / "BISECT_START").write_bytes(BINARY),
    "binary orig-head": in_folder("rebase-merge", "orig-head", BINARY),
    "a link as rebase-merge": lambda git_dir, kept: (git_dir / "rebase-merge").symlink_to(kept),
    "a link as sequencer": lambda git_dir, kept: (git_dir / "sequencer").symlink_to(kept),
    "a folder as index.lock": lambda git_dir, _: (git_dir / "index.lock").mkdir(),
    "a folder as HEAD.lock": lambda git_dir, _: (git_dir / "HEAD.lock").mkdir(),
}


@pytest.mark.parametrize("tampering", TAMPERINGS)
def test_work_is_committed_whatever_stands_in_the_place_of_gits_files(
    depot: Depot, shop: Workshop, tmp_path: Path, tampering: str
) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("kept")
    job = shop.begin(depot.path)
    (job.path / "new").write_text("new\n")
    TAMPERINGS[tampering](depot.path / ".git/worktrees/run_1", kept)

    work = job.commit()

    assert depot.read(work.commit, "new") == "new"
    assert (kept / "file").read_text() == "kept"


def test_an_idle_worktree_that_was_tampered_with_serves_the_next_run(
    depot: Depot, shop: Workshop, tmp_path: Path
) -> None:
    job = shop.begin(depot.path)
    (job.path / "new").write_text("new\n")
    job.close(clean_at=job.commit().commit)
    (tmp_path / "kept").mkdir()
    for git_dir in (depot.path / ".git/worktrees").iterdir():
        (git_dir / "sequencer").symlink_to(tmp_path / "kept")
        (git_dir / "index.lock").mkdir()

    assert (shop.begin(depot.path, "run_2").path / "a.txt").exists()
    assert (tmp_path / "kept").is_dir()


def test_a_head_that_is_a_link_is_made_a_file_again(depot: Depot, shop: Workshop) -> None:
    depot.git("config", "core.preferSymlinkRefs", "true")
    job = shop.begin(depot.path)
    (job.path / "new").write_text("new\n")
    depot.git("checkout", "-q", "--detach", cwd=job.path)

    assert depot.read(job.commit().commit, "new") == "new"


def test_a_folder_is_removed_however_deep_it_is(tmp_path: Path) -> None:
    """Its path has more characters than the system takes, so it is made step by step."""
    top = tmp_path / "top"
    top.mkdir()
    here = os.open(top, os.O_RDONLY)
    for _ in range(DEPTH):
        os.mkdir("deep", dir_fd=here)
        inner = os.open("deep", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)

    remove_tree(top)

    assert not top.exists()


@pytest.mark.parametrize("name", ["pipe", "link", "folder", "binary", "missing"])
def test_what_is_no_plain_text_says_nothing_and_is_never_waited_for(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    makes: dict[str, Callable[[], object]] = {
        "pipe": lambda: os.mkfifo(path),
        "link": lambda: path.symlink_to("/etc/passwd"),
        "folder": path.mkdir,
        "binary": lambda: path.write_bytes(BINARY),
        "missing": lambda: None,
    }
    makes[name]()

    assert read_text(path) == ""
    remove_path(path)
    assert not os.path.lexists(path)


def test_a_pipe_as_commondir_holds_nobody_up(depot: Depot) -> None:
    git_dir = depot.path / ".git/worktrees/other"
    depot.git("worktree", "add", "-q", "--detach", "../other")
    (git_dir / "commondir").unlink()
    os.mkfifo(git_dir / "commondir")

    place = SafeGitConfig().locate(depot.path, git_dir, None)

    assert place is not None
    assert place.files()[0] == git_dir / "config"
    shutil.rmtree(git_dir)


@pytest.mark.parametrize("name", ["pipe", "folder", "broken"])
def test_a_configuration_that_cannot_be_read_is_refused_in_a_sentence(depot: Depot, name: str) -> None:
    path = depot.path / ".git/config"
    path.unlink()
    makes: dict[str, Callable[[], object]] = {
        "pipe": lambda: os.mkfifo(path),
        "folder": path.mkdir,
        "broken": lambda: path.write_text("[core\n"),
    }
    makes[name]()

    with pytest.raises(AgentqError, match="cannot be read"):
        Git(depot.path, depot.path / ".git")("status")
