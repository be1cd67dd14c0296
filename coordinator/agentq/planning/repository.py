"""Finds the repository of a plan, its base and its target branch.

Problems are found before the submit, by reading the repository and changing nothing: it exists, git knows a committer,
the base exists, and no checkout is in the way.
"""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from agentq.coordinator.errors import Invalid, Refused
from agentq.coordinator.security.git_directory import (
    PASSED_VARIABLES,
    OwnGitDirectories,
    build_variables,
    find_real_checkout,
)
from agentq.planning.errors import InvalidPlan, PlanProblem, did_you_mean, quote_value
from agentq.planning.expand.expanded_plan import ExpandedPlan
from agentq.planning.model import PlanDefinition, TaskDefinition, WorktreeOptions
from agentq.planning.read.source_tree import SourceTable, find_position

NO_REPOSITORY = "none"
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+|[^\s/:]+@?[^\s/:]*:\S+")
_KEPT_VARIABLES = frozenset((*PASSED_VARIABLES, "GIT_SSH_COMMAND", "GIT_SSH", "GIT_ASKPASS", "GIT_SSL_CAINFO"))
"""Git variables that are passed on; others may point to another repository, as within a git hook."""
_IDENTITY_VARIABLES = re.compile(r"GIT_(AUTHOR|COMMITTER)_(NAME|EMAIL)")
_own_directories = OwnGitDirectories()
RUN_BRANCH = "agentq/RUN"
"""The branch name of a run."""
GIT_TIMEOUT_S = 30
"""How long a remote may take to list its branches."""


@dataclass(frozen=True, slots=True)
class PlanRepository:
    """The repository, base and target of a plan."""

    repository: str
    local: bool
    """Whether it is a folder of this host, so that only workers of this host can use it."""
    base: str
    target: str
    update_checkout: bool = False
    checked_out: str | None = None
    """The branch that is checked out in the repository's own checkout, if it has one."""


@dataclass(frozen=True, slots=True)
class RepositoryOptions:
    """Options of the command line."""

    base: str | None = None
    target: str | None = None
    update_checkout: bool = False


def needs_worktrees(expanded: ExpandedPlan) -> bool:
    """Whether any task of a plan works in a worktree."""
    plan = expanded.plan
    if plan.repository is not None:
        return plan.repository != NO_REPOSITORY
    if plan.workspace is False:
        return False
    has_settings = any(option is not None for option in (plan.base, plan.target, plan.merge, plan.check, plan.setup))
    if has_settings or plan.workspace is not None or any(_needs_worktree(each.task) for each in expanded.tasks):
        return True
    return any({"agent", "workspace"} & each.table.keys() for each in expanded.broken)


def _needs_worktree(task: TaskDefinition) -> bool:
    return task.workspace is not False and (task.agent is not None or isinstance(task.workspace, WorktreeOptions))


def find_repository(expanded: ExpandedPlan, options: RepositoryOptions | None = None) -> PlanRepository | None:
    """The repository of a plan; None if it needs none."""
    if not needs_worktrees(expanded):
        return None
    options, plan = options or RepositoryOptions(), expanded.plan
    location = plan.repository or "."
    if _is_address(location, expanded.folder):
        return _remote_repository(expanded, location, options)
    top = _find_top_level(location, expanded.table, expanded.folder)
    if isinstance(top, PlanProblem):
        raise InvalidPlan([top])
    checkout = _LocalRepository(top)
    base = options.base or plan.base or checkout.branch or checkout.commit("HEAD")
    if base is None:
        raise Invalid(f"The repository {top} has no commit yet, so there is nothing to start from; make a first one.")
    checkout.check(expanded, base)
    update = options.update_checkout or _workspace_flag(expanded, "update_checkout")
    target = (
        options.target or plan.target or (base if update and base == checkout.branch else f"agentq/{expanded.name}")
    )
    checkout.check_names(target)
    checkout.check_target(target, update=update)
    if expanded.plan.merge != "none":
        checkout.check_history(base, target)
    return PlanRepository(str(top), True, base, target, update, checkout.branch if (top / ".git").exists() else None)


def find_repository_faults(plan: PlanDefinition, table: SourceTable, folder: Path) -> list[PlanProblem]:
    """The faults of the folder that a plan names as its repository. Addresses and branches are not checked."""
    location = plan.repository
    if location in (None, NO_REPOSITORY) or _is_address(location, folder):
        return []
    top = _find_top_level(location, table, folder)
    return [top] if isinstance(top, PlanProblem) else []


def _is_address(location: str, folder: Path) -> bool:
    return _ADDRESS.fullmatch(location) is not None and not Path(folder, location).exists()


def _find_top_level(location: str, table: SourceTable, plan_folder: Path) -> Path | PlanProblem:
    """The repository that contains a folder, or the fault."""
    place, path = find_position(table, ("repository",))
    folder = Path(plan_folder, os.path.expanduser(location)).resolve()
    if not folder.is_dir():
        there = "is not a folder" if folder.exists() else "there is no such folder"
        hint = "Name the folder of a repository, from the plan's, or an address"
        return PlanProblem(place, path, f"{folder}: {there}", hint)
    hint = "Say `repository`, or `repository: none` if the tasks need no worktrees"
    return _find_toplevel(folder) or PlanProblem(place, path, f"{folder} is not in a git repository", hint)


def _workspace_flag(expanded: ExpandedPlan, name: str) -> bool:
    options = expanded.plan.workspace
    return isinstance(options, WorktreeOptions) and bool(getattr(options, name))


def _find_toplevel(folder: Path) -> Path | None:
    """The checkout that contains a folder, or the folder itself if it is a bare repository."""
    git_directory = _own_directories.locate(folder)
    if git_directory is None:
        run_git(None, "version")
        return None
    return git_directory.own if git_directory.is_bare else git_directory.top


class _LocalRepository:
    """A repository of this host."""

    def __init__(self, top: Path) -> None:
        self._top = top
        code, out = run_git(top, "symbolic-ref", "--quiet", "--short", "HEAD")
        self.branch = out.strip() if code == 0 else None

    def commit(self, name: str) -> str | None:
        code, out = run_git(self._top, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
        return out.strip() if code == 0 else None

    def check(self, expanded: ExpandedPlan, base: str) -> None:
        """Refuse a repository without the base or a committer, or with changes that the plan refuses."""
        if self.commit(base) is None:
            _, out = run_git(self._top, "for-each-ref", "--format=%(refname:short)", "refs/heads", "refs/remotes")
            names = sorted(out.split(), key=lambda name: name.startswith("agentq/"))
            hint = did_you_mean(base, names) or (
                f"There is {', '.join(names[:8])}." if names else "It has no branch yet."
            )
            raise Invalid(
                f"The repository {self._top} has no branch or commit {quote_value(base)} to start from. {hint}"
            )
        self._check_identity()
        if _refuses_dirty(expanded):
            self._check_clean("--untracked-files=all", "the plan says `dirty: refuse`")

    def _check_identity(self) -> None:
        """Refuse a repository where git does not know the committer."""
        for role in ("GIT_AUTHOR_IDENT", "GIT_COMMITTER_IDENT"):
            code, _ = run_git(self._top, "-c", "user.useConfigOnly=true", "var", role)
            if code:
                raise Invalid(
                    f"git does not know who commits in {self._top}; say it with `git config user.name NAME` and "
                    "`git config user.email ADDRESS`."
                )

    def _check_clean(self, which: str, why: str) -> None:
        code, out = run_git(self._top, "status", "--porcelain", which)
        lines = [line for line in out.splitlines() if line]
        if code == 0 and lines:
            some = ", ".join(line[3:] for line in lines[:3]) + (" and more" if len(lines) > 3 else "")
            raise Refused(
                f"The checkout {self._top} has uncommitted changes ({some}), and {why}; commit or stash them."
            )

    def check_target(self, target: str, *, update: bool) -> None:
        """Refuse a target that is checked out, unless that checkout may be updated."""
        if run_git(self._top, "check-ref-format", "--branch", target)[0]:
            raise Invalid(f"{quote_value(target)} is not the name of a branch.")
        where = self._worktrees().get(f"refs/heads/{target}")
        if where is None or where.startswith(_home_prefix()):
            return
        if not update:
            raise Invalid(
                f"The branch {target} is checked out in {where}, which would no longer fit to it; give "
                f"--update-checkout if that may follow, or another branch with --target."
            )
        if where != str(self._top):
            raise Invalid(f"The branch {target} is checked out in {where}, which is not the repository's own checkout.")
        self._check_clean("--untracked-files=no", "the checkout is to follow the work")

    def check_names(self, target: str) -> None:
        """Refuse branch names that git cannot have beside existing ones: a branch is a file below `refs/heads`, so its
        name cannot be a folder of others."""
        for name, instead in ((target, ", or name another branch with --target"), (RUN_BRANCH, "")):
            parts = name.split("/")
            above = [f"refs/heads/{'/'.join(parts[:depth])}" for depth in range(1, len(parts))]
            below = [f"refs/heads/{name}/"] if name == target else []
            _, out = run_git(self._top, "for-each-ref", "--count=1", "--format=%(refname:lstrip=2)", *above, *below)
            found = out.strip()
            if found and (found + "/" in name or found.startswith(name + "/")):
                raise Invalid(
                    f"The repository {self._top} has a branch {found}, beside which git cannot have {name}; rename it "
                    f"with `git branch -m {found} NAME`{instead}."
                )

    def check_history(self, base: str, target: str) -> None:
        """Refuse a target that has diverged from the base: tasks start from the target, which must contain the base."""
        tip, begun = self.commit(f"refs/heads/{target}"), self.commit(base)
        if tip is None or begun is None:
            return
        ours, theirs = (
            run_git(self._top, "merge-base", "--is-ancestor", *each)[0] for each in ((begun, tip), (tip, begun))
        )
        if ours and theirs:
            raise Invalid(
                f"The branch {target} has parted from {base}: each has commits that the other has not. If you have all "
                f"of it elsewhere, delete it with `git branch -D {target}`; or merge {base} into it, or name another "
                "branch with --target."
            )

    def _worktrees(self) -> dict[str, str]:
        """The checkouts, by branch."""
        _, out = run_git(self._top, "worktree", "list", "--porcelain")
        found: dict[str, str] = {}
        for block in out.split("\n\n"):
            fields = dict(line.partition(" ")[::2] for line in block.splitlines())
            if "branch" in fields:
                found[fields["branch"]] = str(find_real_checkout(Path(fields["worktree"])))
        return found


def _home_prefix() -> str:
    from agentq.coordinator.storage.embedded import data_folder

    return f"{data_folder()}/"


def _refuses_dirty(expanded: ExpandedPlan) -> bool:
    options = [expanded.plan.workspace, *(each.task.workspace for each in expanded.tasks)]
    return any(isinstance(each, WorktreeOptions) and each.dirty == "refuse" for each in options)


def _remote_repository(expanded: ExpandedPlan, address: str, options: RepositoryOptions) -> PlanRepository:
    """A repository that git fetches from. Its branches are checked if this host can reach it."""
    base = options.base or expanded.plan.base
    code, out = run_git(None, "ls-remote", "--symref", "--", address, "HEAD", *([base] if base else []))
    if code == 0:
        refs = [line.split("\t") for line in out.splitlines()]
        if base is None:
            base = next((left[5:].removeprefix("refs/heads/") for left, _ in refs if left.startswith("ref: ")), None)
        elif not any(name.endswith(f"/{base}") for _, name in refs) and not re.fullmatch(r"[0-9a-f]{7,64}", base):
            raise Invalid(f"The repository {address} has no branch {quote_value(base)} to start from.")
    if base is None:
        raise Invalid(f"{address} cannot be read from here; name the branch to start from, with `base` or --base.")
    target = options.target or expanded.plan.target or f"agentq/{expanded.name}"
    return PlanRepository(address, False, base, target)


def has_branch(repository: str, name: str) -> bool:
    """Whether a repository on this host has a branch."""
    return run_git(Path(repository), "show-ref", "--verify", "--quiet", f"refs/heads/{name}")[0] == 0


def run_git(folder: Path | None, *arguments: str, timeout_s: int = GIT_TIMEOUT_S) -> tuple[int, str]:
    """Run git in the repository of a folder, or in none; returns its exit code and output."""
    environment = {name: value for name, value in os.environ.items() if _is_passed(name)}
    environment |= {"GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", "GIT_NO_LAZY_FETCH": "1", "LC_ALL": "C"}
    git_directory = _own_directories.locate(folder) if folder is not None and folder.is_dir() else None
    options = [f"--git-dir={os.devnull if git_directory is None else git_directory.own}"]
    if git_directory is not None:
        environment |= build_variables(git_directory, _own_directories.directory(git_directory))
        options += [f"--work-tree={git_directory.top}"] if git_directory.top else []
    try:
        done = subprocess.run(
            ["git", *options, *arguments],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
    except FileNotFoundError:
        raise Invalid("git is not installed here; a plan with worktrees needs it.") from None
    except subprocess.TimeoutExpired:
        return 124, ""
    return done.returncode, done.stdout.decode(errors="surrogateescape")


def _is_passed(name: str) -> bool:
    return not name.startswith("GIT_") or name in _KEPT_VARIABLES or bool(_IDENTITY_VARIABLES.fullmatch(name))
