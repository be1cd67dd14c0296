"""The workspace of a run: the worktree that it works in, where its commits go, and what was delivered.

The coordinator knows nothing of git. It keeps these values, and which run may move a target (see merge_queue.py).
"""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, model_validator

from agentq.coordinator import bounds as most
from agentq.coordinator.model.field_types import Name, Text, TextList, TimeoutMs, limit_bytes
from agentq.coordinator.model.lifecycle import OutcomeClass
from agentq.coordinator.model.retry_policy import OutcomeClassPolicy, RetryPolicy

_INVALID_BRANCH = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|\.lock(/|$)|(^|/)\.|[./]$|^/|^@$|^HEAD$")
_REPOSITORY_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+|[^\s/:]+:\S+")
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _check_line(text: str) -> str:
    """Refuse a text that is unsafe as an argument of git, or a part of one."""
    if not text.strip() or text.startswith("-") or not text.isprintable():
        raise ValueError("it should be one line of text, and not begin with -")
    return text


def _check_branch(text: str) -> str:
    if _INVALID_BRANCH.search(_check_line(text)):
        raise ValueError(f"{text[:80]!r} is not the name of a branch")
    return text


def _check_repository(text: str) -> str:
    if not _check_line(text).startswith("/") and not _REPOSITORY_ADDRESS.fullmatch(text):
        raise ValueError("give the absolute path of a repository, or an address that git can fetch from")
    return text


def _check_relative_paths(paths: tuple[str, ...]) -> tuple[str, ...]:
    for path in paths:
        if not path or path.startswith(("/", "-")) or ".." in path.split("/"):
            raise ValueError(f"{path[:80]!r} is not a path within the repository")
    return paths


def _check_port_variables(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if not _VARIABLE_NAME.fullmatch(name) or name.startswith("AGENTQ_"):
            raise ValueError(f"{name[:80]!r} cannot be the name of a variable of the run's")
    return names


_ShortText = StringConstraints(max_length=most.REFERENCE_CHARACTERS)
CommitReference = Annotated[Text, _ShortText, AfterValidator(_check_line)]
"""Anything that git resolves to a commit: a branch, a tag, `HEAD~1`, a hash."""
BranchName = Annotated[Text, _ShortText, AfterValidator(_check_branch)]
_CommandLine = Annotated[TextList, limit_bytes(most.ARGUMENTS_BYTES, "the command line")]
_RelativePaths = Annotated[TextList, Field(max_length=most.WORKSPACE_PATHS), AfterValidator(_check_relative_paths)]


class WorkspaceSpec(BaseModel):
    """The worktree that a run gets, and how its work is delivered."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)

    repository: Annotated[Text, _ShortText, AfterValidator(_check_repository)]
    """The absolute path of a repository on the worker's host, or a URL."""
    base: CommitReference
    """The start commit: recorded at the submit, and resolved when the run is claimed."""
    target: BranchName | None = None
    """The branch to merge into, and to start from if it contains the base; with merge `none`, only the latter."""
    merge: Literal["squash", "rebase", "merge", "none"] = "squash"
    """How the work is merged. With `squash` a run is exactly one commit."""

    setup: _CommandLine = ()
    setup_timeout_ms: TimeoutMs | None = None
    copy_files: _RelativePaths = ()
    link_files: _RelativePaths = ()
    """Paths in the repository's own checkout that the worktree gets, copied or linked."""
    sparse: _RelativePaths = ()
    """If not empty, the only paths that are checked out."""
    ports: Annotated[TextList, Field(max_length=most.WORKSPACE_PORTS), AfterValidator(_check_port_variables)] = ()
    """Variables that each get a free port number."""
    trust: Literal["none", "repo"] = "none"
    """Whether the hooks of the repository may run."""
    sign: bool = False
    dirty: Literal["allow", "refuse"] = "allow"
    """Whether the repository's own checkout may have uncommitted changes."""

    check: _CommandLine = ()
    """The command that must succeed on the merged work before the target moves."""
    check_timeout_ms: TimeoutMs | None = None
    check_ignored: Literal["clean", "keep"] = "clean"
    """Whether ignored files, such as a check's build output, are kept for the next check."""
    on_check: Literal["agent", "retry", "fail"] = "agent"
    """Who fixes a failing check: the agent in its conversation, another attempt, or none."""
    on_conflict: Literal["agent", "resolver", "retry", "fail"] = "agent"
    resolver: Name | None = None
    """The agent that resolves conflicts, if not the run's own."""
    rounds: Annotated[int, Field(ge=0, le=most.REPAIR_ROUNDS_MAX)] = 2
    """How often a conflict or a failing check goes back to be repaired."""

    tree: Literal["auto", "clean", "same"] = "auto"
    """The start of another attempt; `auto`: `same` for an agent that continues its conversation, else `clean`."""
    keep: Literal["failed", "always", "never"] = "failed"
    """The runs whose worktrees are kept for inspection."""
    push: bool = False
    remote: CommitReference = "origin"
    update_checkout: bool = False
    """Whether the repository's own checkout may follow the target, if it is clean and on it."""
    after_merge: _CommandLine = ()

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        if self.merge == "none" and (self.update_checkout or self.after_merge):
            useless = "update_checkout" if self.update_checkout else "after_merge"
            raise ValueError(f"with merge 'none' the work goes nowhere, so it has no {useless}")
        if (self.on_conflict == "resolver") != (self.resolver is not None):
            raise ValueError(
                "on_conflict 'resolver' needs 'resolver', the agent that is to resolve conflicts"
                if self.resolver is None
                else "resolver means nothing without on_conflict 'resolver'"
            )
        for name in ("check", "setup"):
            if getattr(self, f"{name}_timeout_ms") is not None and not getattr(self, name):
                raise ValueError(f"{name}_timeout_ms means nothing without {name}")
        return self

    def tries(self, policy: RetryPolicy) -> RetryPolicy:
        """The retry policy of a run that works here: repairs have a budget of their own and no delay."""
        actions = {OutcomeClass.CONFLICT: self.on_conflict, OutcomeClass.CHECK: self.on_check}
        rounds = {
            class_: OutcomeClassPolicy(retries=0 if action == "fail" else self.rounds, delay_ms=0)
            for class_, action in actions.items()
            if class_ not in policy.final
        }
        return policy.model_copy(update={"classes": rounds | policy.classes})


class DeliveredWork(BaseModel):
    """The commits that an attempt delivered."""

    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True)

    commit: str | None = None
    """The delivered commit, in the target or else on the run's own branch; None if nothing was changed."""
    base: str | None = None
    """The commit that the work started from."""
    branch: str | None = None
    target: str | None = None
    merged: bool = False
    files: int = 0
    insertions: int = 0
    deletions: int = 0
    checkout_updated: bool = False
    pushed: bool = False
    removes: tuple[str, ...] = ()
    """Files that it removes and another task of the plan has made, as `PATH (TASK)`; the first of them."""
