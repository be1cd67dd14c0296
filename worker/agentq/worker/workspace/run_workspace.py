"""The worktree, the repository and the target of one run, as delivery uses them.

All methods block and are called in threads.
"""

# Over 400 lines: worktree, repository and target of one attempt, as its steps see them.

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from pathlib import Path

from agentq.coordinator.errors import Refused
from agentq.coordinator.model.spec import RunSpec
from agentq.coordinator.model.workspace import DeliveredWork, WorkspaceSpec
from agentq.coordinator.runs.merge_progress import MergeProgress, RepairReason, base_key
from agentq.worker.task_inputs import CONTEXT_HEADING
from agentq.worker.workspace.git.git_command import Git, GitCancellation
from agentq.worker.workspace.git.preserved_refs import fetch_preserved
from agentq.worker.workspace.git.repository import GitRepository, find_repository
from agentq.worker.workspace.merge.checkout_update import CheckoutUpdate
from agentq.worker.workspace.merge.landing import LandedWork, MergePiece, WorkLanding
from agentq.worker.workspace.merge.rebase import CommitRebase, MergePolicy, choose_merger, format_trailer, read_commits
from agentq.worker.workspace.merge.removed_files import find_removed_files
from agentq.worker.workspace.merge.target_branch import TargetBranch, TargetTip
from agentq.worker.workspace.merge.work_commit import CommitMessage, CommittedWork, build_message, commit_work
from agentq.worker.workspace.repair import has_conflict_markers, merge_target
from agentq.worker.workspace.workspaces import PreparedWorktree, WorkerWorkspaces
from agentq.worker.workspace.worktree import ports
from agentq.worker.workspace.worktree.creation import WorktreeRequest, make_worktree
from agentq.worker.workspace.worktree.worktree import MERGES_PREFIX, Worktree, get_worktrees_folder, to_branch_name
from agentq.worker.workspace.worktree.worktree import find_worktree as found_there


class DeliveryStage(Enum):
    """Where an attempt continues."""

    EXECUTE = "the process is to run"
    COMMIT = "it has ended well, and what it left is to be committed"
    DELIVER = "its work is committed"
    DELIVERED = "its work is in the target"


class RunWorkspace:
    """The workspace of one attempt."""

    def __init__(self, run: str, spec: RunSpec, workspaces: WorkerWorkspaces, git: Git) -> None:
        assert spec.workspace is not None
        self.run = run
        self.spec = spec
        self.workspace: WorkspaceSpec = spec.workspace
        self.branch = to_branch_name(run)
        self._workspaces = workspaces
        self._git = git
        self._repository: GitRepository | None = None
        self._pushes_to: str | None = None
        self.prepared: PreparedWorktree | None = None
        self.work: CommittedWork | None = None
        """The work, once it is committed."""
        self.was_committed = False
        """Whether an earlier attempt committed the work; its worktree may have been changed since."""
        self.delivered: LandedWork | None = None
        self.begun_from: str | None = None
        """The base, if this attempt began the work."""
        self.plan_base: str | None = None
        """The commit that the base stands for in the run's plan."""
        self._landing: WorkLanding | None = None
        self._prompt = spec.prompt or ""
        """The prompt with the outcomes of other tasks, once the process has started."""

    @property
    def repository(self) -> GitRepository:
        assert self._repository is not None
        return self._repository

    @property
    def worktree(self) -> Worktree:
        assert self.prepared is not None
        return self.prepared.worktree

    @property
    def path(self) -> Path | None:
        """The path of the worktree, if there is one."""
        return self.prepared.path if self.prepared is not None else None

    @property
    def variables(self) -> dict[str, str]:
        """The variables for commands in the worktree."""
        return self.prepared.variables if self.prepared is not None else {}

    @property
    def notes(self) -> tuple[str, ...]:
        return self.prepared.notes if self.prepared is not None else ()

    def progress_fields(self) -> dict[str, object]:
        """The fields that the next attempt needs."""
        known: dict[str, object] = {
            "host": socket.gethostname(),
            "branch": self.branch,
            "target": self.workspace.target,
        }
        if self.prepared is not None:
            known |= {"worktree": str(self.prepared.path)}
            known |= {"base": self.begun_from} if self.begun_from else {}
        return known

    @property
    def merges(self) -> bool:
        return self.workspace.target is not None and self.workspace.merge != "none"

    @property
    def is_shared(self) -> bool:
        """Whether the remote's branches count."""
        return self.workspace.push or self.repository.is_copy

    def target(self) -> TargetBranch:
        """The branch that the work is merged into."""
        repository, remote = self.repository, self.repository.remote if self.is_shared else None
        assert self.workspace.target is not None
        return TargetBranch(
            repository.git, self.workspace.target, remote, not repository.is_copy, self.plan_base, self._pushes_to
        )

    # ---- before the process

    def find_stage(self, progress: MergeProgress | None) -> DeliveryStage:
        """How far earlier attempts have come."""
        self._repository = find_repository(
            self._git, self.workspace.repository, self._workspaces.home, self.workspace.remote
        )
        self._pushes_to = self.repository.git.pushes_to(self.repository.remote) if self.is_shared else None
        if progress is None or progress.step == "prepared":
            return DeliveryStage.EXECUTE
        if self._is_delivered(progress):
            return DeliveryStage.DELIVERED
        if progress.step == "executed":
            return DeliveryStage.COMMIT if self._reopen() else DeliveryStage.EXECUTE
        return DeliveryStage.DELIVER if self._restore_committed(progress) else DeliveryStage.EXECUTE

    def _restore_committed(self, progress: MergeProgress) -> bool:
        """Restore work that an earlier attempt committed; false if it is not here. For a requeued run, the current tip
        of its branch counts: a person may have resolved there what it failed of.
        """
        commit = progress.commit
        if commit is not None and progress.step == "requeued":
            branch_commit = self.repository.commit(f"refs/heads/{self.branch}")
            commit = self._add_trailers(branch_commit) if branch_commit and branch_commit != commit else commit
        if commit is None or progress.base is None or not self._fetch_commit(commit):
            return False
        self._reopen()
        self.work, self.was_committed = CommittedWork(progress.base, commit), True
        return True

    def _add_trailers(self, commit: str) -> str:
        """A person's commit on the run's branch, with the run's trailers, by which it is found again."""
        (tip,) = read_commits(self.repository.git, commit)
        if tip.carries(self.run):
            return commit
        message = replace(self._message, body=tip.message).text
        marked = self._build_rebase().made(tip.tree, tip.parents, tip, message)
        self.repository.git(
            "update-ref", "-m", "agentq: marked", f"refs/heads/{self.branch}", marked, commit, wait_for_locks=True
        )
        return marked

    def _is_delivered(self, progress: MergeProgress) -> bool:
        if not self.merges or progress.base is None:
            return progress.step == "merged"
        target = self.target()
        tip = target.tip()
        if self.workspace.update_checkout and tip.checkout is not None:
            CheckoutUpdate(target.git, tip.checkout).finish()
        commit = tip.commit and target.delivered(self.run, progress.base, tip.commit)
        if commit:
            target.catch_up(tip)
            self.delivered = LandedWork(commit)
            self._reopen()
        return bool(commit)

    def _fetch_commit(self, commit: str) -> bool:
        """Whether the commit is here; another host has pushed what it handed back."""
        if self.repository.commit(commit) is None and self.repository.is_copy:
            fetch_preserved(self.repository, self.run)
        return self.repository.commit(commit) is not None

    def _reopen(self) -> bool:
        """Reopen the worktree of an earlier attempt, if it is on this host."""
        self.prepared = self._workspaces.reopen(self.repository, self.run)
        return self.prepared is not None

    def prepare(
        self, progress: MergeProgress | None, repair: RepairReason | None, *, continues_earlier: bool
    ) -> RepairReason | None:
        """Prepare a worktree. For a repair, merges the target and returns the repair as it is now."""
        continues = (
            repair is not None or self.workspace.tree == "same" or (self.workspace.tree == "auto" and continues_earlier)
        )
        has_earlier = progress is not None and progress.step != "requeued"
        self.prepared = self._workspaces.prepare(
            self._git,
            self.run,
            self._with_start(progress if repair is not None else None),
            continues=continues and has_earlier,
            has_earlier=has_earlier,
            base=progress.base if progress is not None and has_earlier else None,
        )
        if not has_earlier or progress is None or progress.base is None or not continues:
            self.begun_from = self.worktree.base
        return self._merge_target(repair) if repair is not None else None

    def note_set_up(self) -> None:
        """Record that the setup has succeeded."""
        assert self.prepared is not None
        self._workspaces.note_set_up(self.prepared, self.workspace)

    def _with_start(self, repaired: MergeProgress | None) -> WorkspaceSpec:
        """The workspace with the commit to start from: of a repair its own work, should its worktree be gone; otherwise
        the target where that contains the base, so that a run has what earlier ones did.
        """
        start = (
            repaired.commit
            if repaired is not None and repaired.commit and self.repository.commit(repaired.commit)
            else None
        )
        return self.workspace.model_copy(update={"base": start or self._choose_start()})

    def _choose_start(self) -> str:
        base = self.resolve_base()
        if self.workspace.target is None:
            return base
        tip, git = self._read_movable_tip() if self.merges else self.target().tip(), self.repository.git
        if tip.commit is None or git.is_ancestor(tip.commit, base):
            return base
        if git.is_ancestor(base, tip.commit):
            return tip.commit
        if self.plan_base and self.merges:
            raise Refused(
                f"The branch {self.workspace.target} has parted from {self.workspace.base}, which the plan began from "
                f"at {base[:12]}: each has commits that the other has not. Merge that into "
                f"{self.workspace.target}, or name another target, then retry."
            )
        return tip.commit if self.spec.after else base

    def resolve_base(self) -> str:
        """The commit of the base: the one of the run's plan, or the current one."""
        return self.repository.resolved(self.plan_base or self.workspace.base)

    @property
    def base_key(self) -> str:
        """The key that the base is pinned by."""
        return base_key(self.workspace.repository, self.workspace.base)

    def _read_movable_tip(self) -> TargetTip:
        """The target's tip. Raises if the target cannot move, so that no work begins in vain."""
        tip = self.target().tip()
        self.build_landing(lambda _: None).check_movable(tip)
        return tip

    def _merge_target(self, repair: RepairReason) -> RepairReason:
        tip = self.target().tip().onto or self.worktree.base
        files = merge_target(self.worktree, tip)
        files += tuple(
            file for file in repair.files if file not in files and has_conflict_markers(self.worktree, file, tip)
        )
        assert self.prepared is not None
        self.prepared = replace(self.prepared, worktree=self.worktree.update_record(base=tip))
        unmarked = tuple(file for file in files if not has_conflict_markers(self.worktree, file, tip))
        what = "conflict" if files else repair.what
        return repair.model_copy(update={"what": what, "target": tip, "files": files, "unmarked": unmarked})

    def place_spec(self, spec: RunSpec) -> RunSpec:
        """The run's spec, placed in its worktree."""
        assert self.prepared is not None
        self._prompt = (spec.prompt or "").partition(CONTEXT_HEADING)[0]
        cwd = self.prepared.path / spec.cwd if spec.cwd else self.prepared.path
        return spec.model_copy(update={"cwd": str(cwd), "env": {**self.prepared.variables, **spec.env}})

    # ---- after it

    def commit(self) -> CommittedWork:
        """Commit what the process left."""
        self.work = commit_work(self.worktree, self._message)
        return self.work

    @property
    def _message(self) -> CommitMessage:
        body = self._prompt if self.spec.kind == "agent" and self.spec.name else ""
        return build_message(self.run, self._title, self.spec.task, body)

    @property
    def _title(self) -> str:
        text = self.spec.prompt if self.spec.kind == "agent" else " ".join(self.spec.argv)
        lines = (self.spec.name or text or "").strip().splitlines()
        return lines[0] if lines else self.run

    def build_piece(self, work: CommittedWork) -> MergePiece:
        """The work in the form in which it is merged."""
        git, policy = self.repository.git, self.workspace.merge
        if policy == "merge":
            title = self._title
            return MergePiece(
                self.run, work.commit, work.base, f"Merge {self.branch}: {title}\n\n{format_trailer(self.run)}\n"
            )
        if policy == "rebase" and git.answers("rev-list", "--merges", work.commit, f"^{work.base}") == "":
            return MergePiece(self.run, work.commit, work.base)
        # Merges cannot be put onto another commit one by one: what was to be rebased is one commit then, too.
        return MergePiece(self.run, work.commit, work.base, squash=True)

    def build_offer(self, work: CommittedWork) -> str:
        """The commit by which other runs can merge this work along with theirs."""
        if not self.workspace.check:
            return work.commit  # unchecked work is merged alone
        (tip,) = read_commits(self.repository.git, work.commit)
        return self._build_rebase().squashed(tip, work.base)

    def build_landing(self, note: Callable[[str], None]) -> WorkLanding:
        """Create what merges the work into the target."""
        policy: MergePolicy = "squash" if self.workspace.merge == "none" else self.workspace.merge
        self._landing = WorkLanding(
            self.target(),
            self._build_rebase(),
            policy,
            update_checkout=self.workspace.update_checkout,
            note=note,
            call_blocking=self._workspaces.call_blocking,
        )
        return self._landing

    @property
    def tip(self) -> str:
        """The target's commit when the work was put onto it."""
        return (self._landing and self._landing.target_commit) or self.worktree.base

    def _build_rebase(self) -> CommitRebase:
        git = self.repository.git
        return CommitRebase(git, choose_merger(git, self._merge_worktree_git), sign=self.workspace.sign)

    def _merge_worktree_git(self) -> Git:
        return self.open_merge_worktree(self.work.commit if self.work else "HEAD").git

    def open_merge_worktree(self, commit: str) -> Worktree:
        """The worktree in which merges are checked."""
        name = (self.workspace.target or "").replace("/", "-")[:40]
        folder = get_worktrees_folder(self._workspaces.home, self.repository)
        if (existing := found_there(self.repository, folder / f"{MERGES_PREFIX}{name}")) is not None:
            return existing
        return make_worktree(
            self.repository, self._workspaces.home, WorktreeRequest(f"{MERGES_PREFIX}{name}", commit, None)
        )

    def push(self) -> None:
        """Push the run's branch."""
        git, ref = self.repository.git, f"refs/heads/{self.branch}"
        git.push(self.repository.remote, f"{ref}:{ref}", "--force", expected=self._pushes_to)

    def describe_work(self) -> DeliveredWork:
        """The work as reported in the outcome."""
        landed, work = self.delivered, self.work
        if landed is not None and (work is None or self.was_committed):
            work = self._measure_delivered(landed.commit)
        elif work is not None and work.is_empty:
            work = None
        return DeliveredWork(
            commit=landed.commit if landed else work.commit if work else None,
            base=work.base if work else None,
            branch=self.branch,
            target=self.workspace.target,
            merged=landed is not None,
            files=work.files if work else 0,
            insertions=work.insertions if work else 0,
            deletions=work.deletions if work else 0,
            checkout_updated=landed is not None and landed.checkout_updated,
            pushed=self.is_shared and (landed is not None or (work is not None and not self.merges)),
            removes=self._find_removed(),
        )

    def _find_removed(self) -> tuple[str, ...]:
        if self.delivered is None or self.plan_base is None:
            return ()
        return find_removed_files(self.repository.git, self.plan_base, self.delivered.commit, self.spec.task or "")

    def _measure_delivered(self, landed: str) -> CommittedWork:
        """Describes work that an earlier attempt delivered."""
        (commit,) = read_commits(self.repository.git, landed)
        lines = self.repository.git("diff-tree", "-r", "--numstat", "--no-renames", commit.parents[0], commit.id)
        changes = [line.split("\t")[:2] for line in lines.splitlines()]
        insertions, deletions = (sum(int(each[at]) for each in changes if each[at].isdigit()) for at in (0, 1))
        return CommittedWork(commit.parents[0], commit.id, len(changes), insertions, deletions)

    def close(self, *, failed: str | None, continues: bool) -> None:
        """Release the worktree, as the run's policy says. Its branch stays where only it holds the work."""
        if self.prepared is None:
            return
        prepared = self._with_fresh_cancellation(self.prepared)
        if continues:
            self._workspaces.hand_over(prepared, why=failed or "")
            return
        landed = self.delivered.commit if self.delivered else None
        unchanged = self.work is not None and self.work.is_empty and self.work.base == self.begun_from
        holder = self.begun_from if unchanged else landed
        clean_at = None if self.was_committed else landed
        released = self._workspaces.close(prepared, self.workspace, failed=failed, target=holder, clean_at=clean_at)
        if released != "kept" and landed is None and self.work is not None and not self.work.is_empty:
            git = prepared.worktree.repository.git
            git("update-ref", "-m", "agentq: kept", f"refs/heads/{self.branch}", self.work.commit, wait_for_locks=True)

    def abandon(self) -> None:
        """Another attempt has taken over everything except the ports."""
        if self.prepared is not None:
            ports.release_ports(self.prepared.ports.values())

    @staticmethod
    def _with_fresh_cancellation(prepared: PreparedWorktree) -> PreparedWorktree:
        """Cleanup also runs after the attempt was cancelled."""
        repository = prepared.worktree.repository
        repository = replace(repository, git=replace(repository.git, cancellation=GitCancellation()))
        return replace(prepared, worktree=replace(prepared.worktree, repository=repository))
