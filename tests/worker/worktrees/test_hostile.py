"""Nothing that a repository says runs, nothing leads out of it, and nobody is asked anything."""

# Over 400 lines: each way in which a repository could have its will with git, against one trap.

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from support.hostile_repository import HOOKS, configured, list_hostile_keys, list_hostile_settings
from support.repositories import Depot
from support.servers import until
from support.workspaces import Job, Workshop

from agentq.coordinator.errors import AgentqError, Invalid, NotFound, Refused
from agentq.coordinator.security.git_directory import ALLOWED_SETTINGS, GitPlace, OwnGitDirectories, format_settings
from agentq.planning.repository import _LocalRepository as PlanCheckout
from agentq.worker.agents.tree_fingerprint import Fingerprint
from agentq.worker.process import procfs
from agentq.worker.workspace.git.git_command import LOCAL_TIMEOUT_MS, Git, GitCancellation, GitFailed
from agentq.worker.workspace.git.preserved_refs import push_preserved
from agentq.worker.workspace.git.safe_config import SafeGitConfig
from agentq.worker.workspace.merge.checkout_update import CheckoutUpdate
from agentq.worker.workspace.merge.target_branch import TargetBranch
from agentq.worker.workspace.repair import merge_target
from agentq.worker.workspace.worktree.retention import list_worktrees
from agentq.worker.workspace.worktree.worktree import preserve_worktree


@pytest.fixture
def trap(tmp_path: Path) -> Path:
    """A program that leaves a trace, in a place of its own."""
    program = tmp_path / "trap"
    program.write_text(f'#!/bin/sh\necho "$0 $*" >> {tmp_path}/ran\ncat\nexit 0\n')
    program.chmod(0o755)
    return program


def ran(trap: Path) -> str:
    trace = trap.with_name("ran")
    return trace.read_text() if trace.exists() else ""


@pytest.fixture
def programs(trap: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names that git makes programs of."""
    folder = trap.with_name("programs")
    folder.mkdir()
    for name in ("git-merge-evil", "git-remote-evil", "git-evil", "git-credential-evil"):
        shutil.copy(trap, folder / name)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def found(trap: Path) -> tuple[str, list[str]]:
    """What ran, and what was written where settings point to."""
    own = {"config", "info", "hooks", *HOOKS}
    return ran(trap), sorted(path.name for path in trap.with_name("elsewhere").iterdir() if path.name not in own)


def use_git(job: Job, depot: Depot) -> None:
    """What a worker does with a worktree, and some more."""
    (job.path / "a.txt").write_text("changed\n")
    (job.path / "page.md").write_text("x\n")
    (job.path / "x.dat").write_text("x\n")
    first = job.commit()
    git = job.prepared.worktree.git
    beside = git("commit-tree", f"{first.base}^{{tree}}", "-p", first.base, input="beside\n").strip()
    git("merge", "-q", "--no-ff", "--no-edit", beside)
    git("log", "-p", "-1")
    git("diff", first.base, "HEAD")
    git("status", "--porcelain")
    git("stash", "list")
    git("cat-file", "--filters", "HEAD:a.txt")
    target = TargetBranch(job.prepared.worktree.repository.git, "work", "origin", address=None)
    target.move(target.tip(), first.commit)
    target.catch_up(target.tip())
    git("push", "-q", "origin", "HEAD:refs/heads/pushed", remote=True)
    git("fetch", "-q", "origin", remote=True)
    CheckoutUpdate(job.prepared.worktree.repository.git, depot.path).follow(
        depot.head("main"), first.commit, lambda: None
    )
    (job.path / "b.txt").write_text("more\n")
    merge_target(job.prepared.worktree, beside)
    preserve_worktree(job.prepared.worktree)
    push_preserved(job.prepared.worktree.repository, job.run)
    asyncio.run(Fingerprint.of(job.path))
    asyncio.run(Fingerprint.of(depot.path))


def test_no_setting_of_git_that_is_named_like_a_program_or_a_file_is_allowed() -> None:
    listed = subprocess.run(["git", "help", "--config"], capture_output=True, text=True, check=True).stdout.split()
    words = re.compile(r"(cmd|command|program|helper|tool|editor|pager|driver|hook|file|path|dir|proxy|target|pack)$")

    assert len(listed) > 500
    assert [key for key in map(str.lower, listed) if ALLOWED_SETTINGS.fullmatch(key) and words.search(key)] == []


@pytest.mark.parametrize("key", sorted(list_hostile_keys() - {"extensions.partialClone", "remote.origin.promisor"}))
def test_a_hostile_setting_is_not_read(depot: Depot, trap: Path, key: str) -> None:
    """But for addresses, which are compared before anything is pushed, and reached by known protocols only."""
    name, value = key.format(trap=trap), list_hostile_settings(trap)[key.format(trap=trap)]
    (depot.path / ".git/config").write_text(format_settings([(name, value)]))

    directory = OwnGitDirectories().directory(GitPlace(depot.path / ".git", depot.path / ".git", depot.path))

    kept = ("url.", "remote.evil.url")
    assert ((directory / "config").read_text() != "") == key.startswith(kept)


@pytest.mark.usefixtures("programs")
@pytest.mark.parametrize("who", ["the owner", "an agent"])
def test_nothing_of_a_hostile_repository_runs(depot: Depot, shop: Workshop, trap: Path, who: str) -> None:
    depot.git("clone", "-q", "--bare", ".", "../origin.git")
    depot.git("remote", "add", "origin", str(depot.path.parent / "origin.git"))
    depot.git("fetch", "-q", "origin")
    if who == "the owner":
        configured(depot, trap)
    job = shop.begin(depot.path, base="origin/main")
    if who == "an agent":
        configured(depot, trap, worktree="run_1")

    use_git(job, depot)
    job.close()
    shop.begin(depot.path, "run_2", sparse=("x",)).close()
    with suppress(Invalid, Refused):
        PlanCheckout(depot.path).check_target("main", update=True)
    for name in ("main", "nothing"):
        PlanCheckout(depot.path).commit(name)

    assert found(trap) == ("", [])


@pytest.mark.full("takes 5 s")
def test_a_configuration_that_changes_all_the_time_runs_nothing(depot: Depot, trap: Path) -> None:
    """An agent of another run of the repository may write at any moment: also after it was looked at, before git is."""
    configured(depot, trap)
    file, new = depot.path / ".git/config", depot.path / ".git/config-new"
    texts = (file.read_text(), file.read_text().partition("[alias]")[0])
    over = threading.Event()

    def change() -> None:
        while not over.wait(0.0015):
            for text in texts:
                new.write_text(text)
                new.replace(file)

    changing = threading.Thread(target=change)
    changing.start()
    try:
        for number in range(100):
            (depot.path / "a.txt").write_text(f"{number}\n")
            Git(depot.path)("add", "-A")
    finally:
        over.set()
        changing.join()

    assert found(trap) == ("", [])


def test_git_fetches_nothing_that_a_partial_clone_lacks(depot: Depot, shop: Workshop, trap: Path) -> None:
    depot.git("clone", "-q", "--bare", ".", "../origin.git")
    depot.git("remote", "add", "origin", str(depot.path.parent / "origin.git"))
    depot.git("config", "extensions.partialClone", "origin")
    blob = depot.git("rev-parse", "HEAD:a.txt")
    (depot.path / ".git/objects" / blob[:2] / blob[2:]).unlink()

    with pytest.raises(AgentqError):
        shop.begin(depot.path)
    with pytest.raises(GitFailed):
        Git(depot.path)("cat-file", "blob", blob)
    depot.git("config", "remote.origin.uploadpack", str(trap))
    with pytest.raises(AgentqError):
        shop.begin(depot.path, "run_2")
    assert ran(trap) == ""
    depot.git("config", "--unset", "remote.origin.uploadpack")
    assert Git(depot.path, safe_config=SafeGitConfig(trust=True))("cat-file", "blob", blob)


def test_a_copy_that_a_run_has_tampered_with_runs_nothing(
    depot: Depot, shop: Workshop, trap: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "me")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "me@localhost")
    address = f"file://{depot.path}"
    common = shop.begin(address).prepared.worktree.record.common
    depot.git("--git-dir", str(common), "config", "remote.origin.uploadpack", str(trap))
    depot.git("--git-dir", str(common), "config", "remote.origin.url", "/elsewhere")
    depot.git("--git-dir", str(common), "config", "remote.origin.pushurl", "/elsewhere")
    depot.git("checkout", "-q", "-b", "another")
    commit = depot.commit("on another", new="new")

    job = shop.begin(address, "run_2", base="HEAD")

    assert ran(trap) == ""
    assert job.prepared.worktree.record.base == commit
    assert depot.git("--git-dir", str(common), "remote", "get-url", "--push", "--all", "origin") == address


@pytest.mark.parametrize("trust", [False, True])
def test_what_is_pushed_to_a_path_runs_its_hooks_only_with_trust(depot: Depot, trap: Path, *, trust: bool) -> None:
    origin = depot.path.parent / "origin.git"
    depot.git("clone", "-q", "--bare", ".", str(origin))
    depot.git("remote", "add", "origin", str(origin))
    depot.git("--git-dir", str(origin), "config", "core.alternateRefsCommand", str(trap))
    for hook in ("pre-receive", "update", "post-receive", "post-update", "reference-transaction"):
        shutil.copy(trap, origin / "hooks" / hook)
    git = Git(depot.path, safe_config=SafeGitConfig(trust=trust))

    git.push("origin", "main:refs/heads/pushed")
    git.push(f"file://{origin}", "main:refs/heads/again")

    assert ("pre-receive" in ran(trap)) == trust
    assert (ran(trap) != "") == trust
    pushed = depot.git("--git-dir", str(origin), "rev-parse", "pushed", "again").split()
    assert pushed == [depot.git("rev-parse", "main")] * 2


def test_only_known_protocols_are_spoken_whatever_a_repository_allows(
    depot: Depot, trap: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("fd", "ext", "other"):
        depot.git("config", f"protocol.{name}.allow", "always")
    for address in ("fd::17/x", f"ext::{trap}", "other::x"):
        with pytest.raises(GitFailed, match="not allowed"):
            Git(depot.path)("fetch", "-q", address, remote=True)
    assert ran(trap) == ""
    (tmp_path / "gitconfig").write_text('[protocol "other"]\nallow = always\n[protocol "file"]\nallow = never\n')
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    with pytest.raises(GitFailed, match="remote-other"):
        Git(depot.path)("fetch", "-q", "other::x", remote=True)
    with pytest.raises(GitFailed, match="'file' not allowed"):
        Git(depot.path)("fetch", "-q", str(depot.path), remote=True)


def test_what_the_user_has_set_up_runs_and_for_nobody_else(
    depot: Depot, shop: Workshop, trap: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So LFS works, where `git lfs install` has been said; and not where only a repository says so."""
    own = tmp_path / "gitconfig"
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(own))
    depot.git("config", "--global", "filter.lfs.smudge", "sed s/pointer/content/", env={"GIT_CONFIG_GLOBAL": str(own)})
    depot.git("config", "filter.lfs.smudge", str(trap))
    depot.git("config", "filter.other.smudge", str(trap))
    depot.commit("pointers", big="pointer\n", other="pointer\n", __gitattributes="big filter=lfs\nother filter=other\n")

    job = shop.begin(depot.path)

    assert (job.path / "big").read_text() == "content\n"
    assert (job.path / "other").read_text() == "pointer\n"
    assert job.prepared.notes == ()
    own.unlink()
    pointers = shop.begin(depot.path, "run_2")
    assert (pointers.path / "big").read_text() == "pointer\n"
    assert "only pointers" in pointers.prepared.notes[0]
    assert ran(trap) == ""


def test_a_repository_that_says_that_its_files_are_elsewhere_is_not_believed(
    depot: Depot, shop: Workshop, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "secret").write_text("not yours")
    (depot.path / "own").write_text("own")
    depot.git("config", "core.worktree", str(tmp_path / "elsewhere"))

    job = shop.begin(depot.path, copy_files=("own",))

    assert sorted(path.name for path in job.path.iterdir()) == [".git", "a.txt", "b.txt", "own"]
    with pytest.raises(NotFound):
        shop.begin(depot.path, "run_2", copy_files=("secret",))
    assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == ["secret"]


def test_commits_are_signed_where_the_run_says_so_and_by_whom_the_user_says(
    depot: Depot, shop: Workshop, trap: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signer = tmp_path / "signer"
    signer.write_text("#!/bin/sh\ncat > /dev/null\necho '[GNUPG:] SIG_CREATED ' >&2\necho signature-of-the-user\n")
    signer.chmod(0o755)
    (tmp_path / "gitconfig").write_text(f"[gpg]\nprogram = {signer}\n[commit]\ngpgSign = true\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    depot.git("config", "gpg.program", str(trap))
    signed = {}
    for run, sign in (("run_1", True), ("run_2", False)):
        job = shop.begin(depot.path, run, sign=sign)
        (job.path / "new").write_text("new\n")
        signed[sign] = "signature-of-the-user" in depot.git("cat-file", "-p", job.commit().commit)

    assert signed == {True: True, False: False}
    assert ran(trap) == ""


def test_a_run_that_turns_its_worktree_over_to_another_repository_is_not_followed(
    depot: Depot, shop: Workshop, trap: Path, tmp_path: Path
) -> None:
    evil = Depot(tmp_path / "evil")
    configured(evil, trap)
    job = shop.begin(depot.path)
    (job.path / "new").write_text("new\n")
    (job.path / ".git").write_text(f"gitdir: {evil.path}/.git\n")
    (depot.path / ".git/worktrees/run_1/config.worktree").write_text(f"[core]\nfsmonitor = {trap}\nworktree = /tmp\n")
    depot.git("config", "extensions.worktreeConfig", "true")

    work = job.commit()

    assert ran(trap) == ""
    assert depot.git("diff", "--name-only", "main", work.commit) == "new"


def test_a_submodule_that_a_run_has_tampered_with_runs_nothing(depot: Depot, shop: Workshop, trap: Path) -> None:
    inner = Depot(depot.path.parent / "inner")
    inner.commit("inner", i__txt="i\n")
    depot.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(inner.path), "lib")
    depot.commit("with")
    job = shop.begin(depot.path)
    modules = depot.path / ".git/worktrees/run_1/modules/lib"
    for key in ("core.fsmonitor", "filter.evil.clean", "core.sshCommand"):
        depot.git("--git-dir", str(modules), "config", key, str(trap))
    (modules / "info/attributes").write_text("* filter=evil\n")
    (job.path / "lib/i.txt").write_text("changed\n")
    (job.path / "new").write_text("new\n")

    work = job.commit()
    job.close(clean_at=work.commit)

    assert ran(trap) == ""
    assert depot.git("--git-dir=.git/modules/lib", "show", "refs/agentq/run_1:i.txt") == "changed"


@pytest.mark.parametrize(
    ("copies", "links", "error", "says"),
    [
        (("missing",), (), NotFound, "does not exist"),
        (("out",), (), Invalid, "leads out of the repository"),
        ((), ("out/passwd",), Invalid, "leads out of the repository"),
        (("away/x",), (), Invalid, "away is a link that leads out"),
        (("a.txt",), (), Invalid, "a.txt is in the repository"),
    ],
)
def test_copies_and_links_do_not_lead_out(
    depot: Depot, shop: Workshop, tmp_path: Path,
    copies: tuple[str, ...], links: tuple[str, ...], error: type[AgentqError], says: str,
) -> None:  # fmt: skip
    outside = tmp_path / "outside"
    outside.mkdir()
    (depot.path / "away").symlink_to(outside)
    depot.commit("with a link that leads out")
    (depot.path / "away").unlink()
    (depot.path / "away").mkdir()
    (depot.path / "away" / "x").write_text("x")
    (depot.path / "out").symlink_to("/etc")

    with pytest.raises(error, match=says):
        shop.begin(depot.path, copy_files=copies, link_files=links)
    assert list(outside.iterdir()) == []
    assert [each.kind for each in list_worktrees(shop.home)] == ["idle"], "nobody works in it"


def test_git_is_given_nothing_of_the_workers_and_asks_nobody(depot: Depot, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GIT_DIR", "GIT_INDEX_FILE", "GIT_EXTERNAL_DIFF", "AGENTQ_URL", "SECRET"):
        monkeypatch.setenv(name, "/nowhere")
    git = Git(depot.path)

    seen = git("-c", "alias.seen=!env", "seen")
    assert "/nowhere" not in seen
    assert "GIT_TERMINAL_PROMPT=0" in seen
    assert "AGENTQ_URL" not in git("-c", "alias.seen=!env", "seen", remote=True)


def test_git_that_takes_too_long_ends_with_all_it_started(
    depot: Depot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids = tmp_path / "pids"

    class Slow(subprocess.Popen[bytes]):
        """Whose time is over once it has told who it is."""

        def communicate(self, input: bytes | None = None, timeout: float | None = None) -> tuple[bytes, bytes]:  # noqa: A002
            if timeout == LOCAL_TIMEOUT_MS / 1000 and "slow" in self.args:  # type: ignore[operator]
                until(lambda: pids.exists() and len(pids.read_text().split()) == 2, "git to begin")
                timeout = 0.01
            return super().communicate(input, timeout)

    monkeypatch.setattr("agentq.worker.workspace.git.git_command.subprocess.Popen", Slow)
    with pytest.raises(GitFailed, match="took longer than"):
        Git(depot.path)("-c", f"alias.slow=!sleep 600 & echo $! $$ > {pids}; wait", "slow")

    started = [int(pid) for pid in pids.read_text().split()]
    until(
        lambda: not any(one.alive for pid in started if (one := procfs.read_stat(pid))),
        "all that was killed to be gone",
    )


def test_a_failure_is_a_sentence_without_a_password(depot: Depot) -> None:
    git = Git(depot.path, safe_config=SafeGitConfig(), cancellation=GitCancellation())
    with pytest.raises(GitFailed) as failed:
        git("fetch", "-q", "http://me:secret@127.0.0.1:9/x.git", remote=True)

    assert str(failed.value).startswith("git fetch failed: ")
    assert "secret" not in str(failed.value) + failed.value.stderr
