"""The repository of a plan is found and checked at its submit."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from agentq.coordinator.errors import Invalid, Refused
from agentq.planning.expand.expander import expand_plan
from agentq.planning.repository import PlanRepository, RepositoryOptions, find_repository

AGENT = "tasks: [{id: a, agent: x, prompt: y}]\n"
SiteOf = Callable[..., PlanRepository | None]


def git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", folder, *words], check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one commit on `main`, and a committer."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    folder = tmp_path / "a repository"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    for name, value in (("user.name", "Ada"), ("user.email", "ada@example.com")):
        git(folder, "config", name, value)
    (folder / "file").write_text("one\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "one")
    return folder


@pytest.fixture
def site(repository: Path) -> SiteOf:
    def find(text: str = "", *, folder: Path = repository, **wishes: object) -> PlanRepository | None:
        (folder / "plan.yaml").write_text(f"{text}\n{AGENT}")
        return find_repository(expand_plan(str(folder / "plan.yaml")), RepositoryOptions(**wishes))  # type: ignore[arg-type]

    return find


def test_the_work_starts_from_what_is_checked_out_and_goes_to_a_branch_of_its_own(
    site: SiteOf, repository: Path
) -> None:
    assert site() == PlanRepository(str(repository), True, "main", "agentq/plan", checked_out="main")


def test_a_plan_in_a_folder_of_the_repository_means_the_repository(site: SiteOf, repository: Path) -> None:
    (repository / "plans").mkdir()
    found = site("base: main\ntarget: next", folder=repository / "plans")

    assert found is not None
    assert (found.repository, found.target) == (str(repository), "next")


def test_without_a_branch_the_work_starts_from_the_commit(site: SiteOf, repository: Path) -> None:
    git(repository, "checkout", "-q", "--detach")
    found = site()

    assert found is not None
    assert found.base == git(repository, "rev-parse", "HEAD")


def test_what_was_said_on_the_command_line_counts_more(site: SiteOf, repository: Path) -> None:
    git(repository, "branch", "old")
    found = site("base: main\ntarget: a", base="old", target="b")

    assert found is not None
    assert (found.base, found.target) == ("old", "b")


def test_the_checked_out_branch_is_the_target_only_if_the_checkout_may_follow(site: SiteOf, repository: Path) -> None:
    with pytest.raises(Invalid, match=rf"The branch main is checked out in {repository}.*give --update-checkout"):
        site(target="main")

    found = site(update_checkout=True)
    assert found is not None
    assert (found.target, found.update_checkout) == ("main", True)
    (repository / "file").write_text("two\n")
    with pytest.raises(Refused, match=r"has uncommitted changes \(file\), and the checkout is to follow"):
        site(update_checkout=True)


def test_a_branch_that_is_checked_out_elsewhere_is_refused_by_name(
    site: SiteOf, repository: Path, tmp_path: Path
) -> None:
    git(repository, "worktree", "add", "-q", "-b", "next", str(tmp_path / "other"))

    with pytest.raises(Invalid, match=f"The branch next is checked out in {tmp_path / 'other'}"):
        site(target="next", update_checkout=True)


def test_a_bare_repository_will_do(site: SiteOf, repository: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare.git"
    git(tmp_path, "clone", "-q", "--bare", str(repository), str(bare))
    git(bare, "config", "user.name", "Ada")
    git(bare, "config", "user.email", "ada@example.com")
    found = site(f"repository: {bare}")

    assert found is not None
    assert found == PlanRepository(str(bare), True, "main", "agentq/plan")


def test_an_address_is_asked_for_its_branches(site: SiteOf, repository: Path) -> None:
    address = f"file://{repository}".replace(" ", "%20")
    found = site(f"repository: {address}")

    assert found == PlanRepository(address, False, "main", "agentq/plan")
    with pytest.raises(Invalid, match="has no branch 'nxt' to start from"):
        site(f"repository: {address}", base="nxt")


def test_an_address_that_does_not_answer_needs_a_base(site: SiteOf, tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"cannot be read from here; name the branch to start from"):
        site(f"repository: file://{tmp_path}/nowhere")

    found = site(f"repository: file://{tmp_path}/nowhere\nbase: main")
    assert found is not None
    assert found.base == "main"


@pytest.mark.parametrize(
    ("text", "wishes", "said"),
    [
        ("repository: ../nowhere", {}, r"plan\.yaml:1:13: repository: .*nowhere: there is no such folder\. Name"),
        ("repository: ./file", {}, r"plan\.yaml:1:13: repository: .*file: is not a folder\. Name"),
        ("repository: ..", {}, r"plan\.yaml:1:13: repository: .* is not in a git repository\. Say"),
        ("", {"base": "mian"}, r"has no branch or commit 'mian' to start from\. Did you mean 'main'\?"),
        ("target: 'a b'", {}, "'a b' is not the name of a branch"),
        ("workspace: {dirty: refuse}", {}, r"has uncommitted changes \(plan.yaml\), and the plan says"),
    ],
)
def test_what_is_wrong_is_said(site: SiteOf, text: str, wishes: dict[str, str], said: str) -> None:
    with pytest.raises((Invalid, Refused), match=said):
        site(text, **wishes)


def test_a_target_that_has_parted_from_the_base_is_refused(site: SiteOf, repository: Path) -> None:
    git(repository, "switch", "-qc", "agentq/plan")
    git(repository, "commit", "-qm", "two", "--allow-empty")
    git(repository, "switch", "-q", "main")
    assert site() is not None, "it has more than the base"
    git(repository, "commit", "-qm", "three", "--allow-empty")

    with pytest.raises(Invalid, match=r"agentq/plan has parted from main: .*git branch -D agentq/plan.*--target"):
        site()
    assert site("merge: none") is not None, "nothing goes there"

    git(repository, "merge", "-q", "--no-edit", "agentq/plan")
    git(repository, "commit", "-qm", "four", "--allow-empty")
    assert site() is not None, "it is brought forward"


def test_a_branch_whose_name_is_in_the_way_of_others_is_refused(site: SiteOf, repository: Path) -> None:
    git(repository, "branch", "next/one")
    with pytest.raises(Invalid, match=r"has a branch next/one, beside which git cannot have next; rename .*--target"):
        site("target: next")
    with pytest.raises(Invalid, match=r"has a branch next/one, beside which git cannot have next/one/two"):
        site("target: next/one/two")
    git(repository, "branch", "agentq")

    with pytest.raises(
        Invalid, match=r"has a branch agentq, .* agentq/RUN; rename it with `git branch -m agentq NAME`"
    ):
        site("target: other")


def test_nobody_commits_as_nobody(site: SiteOf, repository: Path) -> None:
    git(repository, "config", "--unset", "user.email")

    with pytest.raises(Invalid, match=r"git does not know who commits in .*; say it with `git config user.name NAME`"):
        site()


def test_somebody_may_commit_as_the_environment_says(
    site: SiteOf, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(repository, "config", "--unset", "user.email")
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "ci@example.com")
    monkeypatch.setenv("GIT_DIR", "/nowhere")

    assert site() is not None


def test_without_a_commit_there_is_nothing_to_start_from(site: SiteOf, repository: Path) -> None:
    git(repository, "update-ref", "-d", "HEAD")

    with pytest.raises(Invalid, match=r"has no branch or commit 'main' to start from. It has no branch yet."):
        site()


def test_a_plan_outside_of_any_repository_says_so_or_needs_none(site: SiteOf, tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"is not in a git repository. Say `repository`, or `repository: none`"):
        site(folder=tmp_path)

    assert site("repository: none", folder=tmp_path) is None
    assert site("workspace: false", folder=tmp_path) is None
