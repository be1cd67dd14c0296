"""Where one run's work is made and where it goes: what delivery asks of its worktree, its repository and its target.

All of it blocks, and is called in threads.
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
    """How an attempt goes on."""

    EXECUTE = "the process is to run"
    COMMIT = "it has ended well, and what it left is to be committed"
    DELIVER = "its work is committed"
    DELIVERED = "its work is in the target"


class RunWorkspace:
    """Of one attempt."""

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
        """By an earlier attempt, that is; somebody may have been at its worktree since."""
        self.landed: LandedWork | None = None
        self.begun_from: str | None = None
        """The base, if the work was begun by this attempt."""
        self.plan_base: str | None = None
        """The commit that the base stands for in the run's plan."""
        self._landing: WorkLanding | None = None
        self._prompt = spec.prompt or ""
        """With what other tasks gave, once the process has begun with it."""

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
        """Of the worktree, if there is one."""
        return self.prepared.path if self.prepared is not None else None

    @property
    def variables(self) -> dict[str, str]:
        """What commands are told of it."""
        return self.prepared.variables if self.prepared is not None else {}

    @property
    def notes(self) -> tuple[str, ...]:
        return self.prepared.notes if self.prepared is not None else ()

    def noted(self) -> dict[str, object]:
        """What the next attempt is to know of it."""
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
    def goes_somewhere(self) -> bool:
        return self.workspace.target is not None and self.workspace.merge != "none"

    @property
    def is_shared(self) -> bool:
        """Whether what counts is at the remote."""
        return self.workspace.push or self.repository.is_copy

    def target(self) -> TargetBranch:
        """The branch that the work goes to."""
        there, remote = self.repository, self.repository.remote if self.is_shared else None
        assert self.workspace.target is not None
        return TargetBranch(
            there.git, self.workspace.target, remote, not there.is_copy, self.plan_base, self._pushes_to
        )

    # ---- before the process

    def find(self, intent: MergeProgress | None) -> DeliveryStage:
        """Where earlier attempts have come to."""
        self._repository = find_repository(
            self._git, self.workspace.repository, self._workspaces.home, self.workspace.remote
        )
        self._pushes_to = self.repository.git.pushes_to(self.repository.remote) if self.is_shared else None
        if intent is None or intent.step == "prepared":
            return DeliveryStage.EXECUTE
        if self._is_delivered(intent):
            return DeliveryStage.DELIVERED
        if intent.step == "executed":
            return DeliveryStage.COMMIT if self._again() else DeliveryStage.EXECUTE
        return DeliveryStage.DELIVER if self._is_kept(intent) else DeliveryStage.EXECUTE

    def _is_kept(self, intent: MergeProgress) -> bool:
        """Whether work that an earlier attempt committed is here. Of a run that somebody lets begin again, what is on
        its branch by now counts: they may have resolved there what it failed of.
        """
        commit = intent.commit
        if commit is not None and intent.step == "requeued":
            by_hand = self.repository.commit(f"refs/heads/{self.branch}")
            commit = self._marked(by_hand) if by_hand and by_hand != commit else commit
        if commit is None or intent.base is None or not self._has(commit):
            return False
        self._again()
        self.work, self.was_committed = CommittedWork(intent.base, commit), True
        return True

    def _marked(self, commit: str) -> str:
        """A commit that a person made on the branch of the run, as the run's: by its trailers it is found again."""
        (tip,) = read_commits(self.repository.git, commit)
        if tip.carries(self.run):
            return commit
        told = replace(self._message, body=tip.message).text
        marked = self._stacking().made(tip.tree, tip.parents, tip, told)
        self.repository.git(
            "update-ref", "-m", "agentq: marked", f"refs/heads/{self.branch}", marked, commit, patient=True
        )
        return marked

    def _is_delivered(self, intent: MergeProgress) -> bool:
        if not self.goes_somewhere or intent.base is None:
            return intent.step == "merged"
        target = self.target()
        tip = target.tip()
        if self.workspace.update_checkout and tip.checkout is not None:
            CheckoutUpdate(target.git, tip.checkout).finish()
        commit = tip.commit and target.delivered(self.run, intent.base, tip.commit)
        if commit:
            target.catch_up(tip)
            self.landed = LandedWork(commit)
            self._again()
        return bool(commit)

    def _has(self, commit: str) -> bool:
        """Whether it is here; what another host has handed back, it has pushed."""
        if self.repository.commit(commit) is None and self.repository.is_copy:
            fetch_preserved(self.repository, self.run)
        return self.repository.commit(commit) is not None

    def _again(self) -> bool:
        """The worktree of an earlier attempt, if it is on this host."""
        self.prepared = self._workspaces.again(self.repository, self.run)
        return self.prepared is not None

    def prepare(self, intent: MergeProgress | None, mend: RepairReason | None, *, goes_on: bool) -> RepairReason | None:
        """Have a worktree ready. What is to be mended is brought in, and told as it is now."""
        same = mend is not None or self.workspace.tree == "same" or (self.workspace.tree == "auto" and goes_on)
        earlier = intent is not None and intent.step != "requeued"
        self.prepared = self._workspaces.prepare(
            self._git,
            self.run,
            self._from_where(intent if mend is not None else None),
            same=same and earlier,
            earlier=earlier,
            base=intent.base if intent is not None and earlier else None,
        )
        if not earlier or intent is None or intent.base is None or not same:
            self.begun_from = self.worktree.base
        return self._with_target(mend) if mend is not None else None

    def note_set_up(self) -> None:
        """It need not be set up again."""
        assert self.prepared is not None
        self._workspaces.set_up(self.prepared, self.workspace)

    def _from_where(self, mends: MergeProgress | None) -> WorkspaceSpec:
        """The base; or the target, where that has all of it: so a run has what those before it did. To mend its work,
        it begins with that, should its worktree be gone.
        """
        start = mends.commit if mends is not None and mends.commit and self.repository.commit(mends.commit) else None
        return self.workspace.model_copy(update={"base": start or self._start()})

    def _start(self) -> str:
        base = self.resolve_base()
        if self.workspace.target is None:
            return base
        tip, git = self._look() if self.goes_somewhere else self.target().tip(), self.repository.git
        if tip.commit is None or git.is_ancestor(tip.commit, base):
            return base
        if git.is_ancestor(base, tip.commit):
            return tip.commit
        if self.plan_base and self.goes_somewhere:
            raise Refused(
                f"The branch {self.workspace.target} has parted from {self.workspace.base}, which the plan began from "
                f"at {base[:12]}: each has commits that the other has not. Merge that into "
                f"{self.workspace.target}, or name another target, then retry."
            )
        return tip.commit if self.spec.after else base

    def resolve_base(self) -> str:
        """The commit that the base stands for: in the run's plan, or else now."""
        return self.repository.resolved(self.plan_base or self.workspace.base)

    @property
    def base_place(self) -> str:
        """What the base is pinned by."""
        return base_key(self.workspace.repository, self.workspace.base)

    def _look(self) -> TargetTip:
        """Where the target is, unless it cannot move anyway: then nothing is begun."""
        tip = self.target().tip()
        self.landing(lambda _: None).refuse(tip)
        return tip

    def _with_target(self, mend: RepairReason) -> RepairReason:
        tip = self.target().tip().onto or self.worktree.base
        files = merge_target(self.worktree, tip)
        files += tuple(
            file for file in mend.files if file not in files and has_conflict_markers(self.worktree, file, tip)
        )
        assert self.prepared is not None
        self.prepared = replace(self.prepared, worktree=self.worktree.noted(base=tip))
        unmarked = tuple(file for file in files if not has_conflict_markers(self.worktree, file, tip))
        what = "conflict" if files else mend.what
        return mend.model_copy(update={"what": what, "target": tip, "files": files, "unmarked": unmarked})

    def placed(self, spec: RunSpec) -> RunSpec:
        """The run's spec, in its worktree."""
        assert self.prepared is not None
        self._prompt = (spec.prompt or "").partition(CONTEXT_HEADING)[0]
        cwd = self.prepared.path / spec.cwd if spec.cwd else self.prepared.path
        return spec.model_copy(update={"cwd": str(cwd), "env": {**self.prepared.variables, **spec.env}})

    # ---- after it

    def commit(self) -> CommittedWork:
        """What it left."""
        self.work = commit_work(self.worktree, self._message)
        return self.work

    @property
    def _message(self) -> CommitMessage:
        body = self._prompt if self.spec.kind == "agent" and self.spec.name else ""
        return build_message(self.run, self._title, self.spec.task, body)

    @property
    def _title(self) -> str:
        said = self.spec.prompt if self.spec.kind == "agent" else " ".join(self.spec.argv)
        lines = (self.spec.name or said or "").strip().splitlines()
        return lines[0] if lines else self.run

    def piece(self, work: CommittedWork) -> MergePiece:
        """The work, as it is to go into the target."""
        git, policy = self.repository.git, self.workspace.merge
        if policy == "merge":
            said = self._title
            return MergePiece(
                self.run, work.commit, work.base, f"Merge {self.branch}: {said}\n\n{format_trailer(self.run)}\n"
            )
        if policy == "rebase" and git.answers("rev-list", "--merges", work.commit, f"^{work.base}") == "":
            return MergePiece(self.run, work.commit, work.base)
        # Merges cannot be put onto another commit one by one: what was to be rebased is one commit then, too.
        return MergePiece(self.run, work.commit, work.base, squash=True)

    def offer(self, work: CommittedWork) -> str:
        """The commit by which others may take the work along."""
        if not self.workspace.check:
            return work.commit  # nobody does
        (tip,) = read_commits(self.repository.git, work.commit)
        return self._stacking().squashed(tip, work.base)

    def landing(self, say: Callable[[str], None]) -> WorkLanding:
        """How the work gets into the target."""
        policy: MergePolicy = "squash" if self.workspace.merge == "none" else self.workspace.merge
        self._landing = WorkLanding(
            self.target(),
            self._stacking(),
            policy,
            update_checkout=self.workspace.update_checkout,
            say=say,
            calling=self._workspaces.calling,
        )
        return self._landing

    @property
    def tip(self) -> str:
        """Where the target was when the work was put onto it."""
        return (self._landing and self._landing.seen) or self.worktree.base

    def _stacking(self) -> CommitRebase:
        git = self.repository.git
        return CommitRebase(git, choose_merger(git, self._in_bench), sign=self.workspace.sign)

    def _in_bench(self) -> Git:
        return self.bench(self.work.commit if self.work else "HEAD").git

    def bench(self, commit: str) -> Worktree:
        """The worktree in which merges are checked."""
        name = (self.workspace.target or "").replace("/", "-")[:40]
        folder = get_worktrees_folder(self._workspaces.home, self.repository)
        if (there := found_there(self.repository, folder / f"{MERGES_PREFIX}{name}")) is not None:
            return there
        return make_worktree(
            self.repository, self._workspaces.home, WorktreeRequest(f"{MERGES_PREFIX}{name}", commit, None)
        )

    def push(self) -> None:
        """The branch, for others to see."""
        git, ref = self.repository.git, f"refs/heads/{self.branch}"
        git.push(self.repository.remote, f"{ref}:{ref}", "--force", expected=self._pushes_to)

    def told(self) -> DeliveredWork:
        """What is told of it."""
        landed, work = self.landed, self.work
        if landed is not None and (work is None or self.was_committed):
            work = self._counted(landed.commit)
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
            pushed=self.is_shared and (landed is not None or (work is not None and not self.goes_somewhere)),
            removes=self._removes(),
        )

    def _removes(self) -> tuple[str, ...]:
        if self.landed is None or self.plan_base is None:
            return ()
        return find_removed_files(self.repository.git, self.plan_base, self.landed.commit, self.spec.task or "")

    def _counted(self, landed: str) -> CommittedWork:
        """What there is to tell of work that an earlier attempt did."""
        (commit,) = read_commits(self.repository.git, landed)
        lines = self.repository.git("diff-tree", "-r", "--numstat", "--no-renames", commit.parents[0], commit.id)
        changes = [line.split("\t")[:2] for line in lines.splitlines()]
        came, went = (sum(int(each[at]) for each in changes if each[at].isdigit()) for at in (0, 1))
        return CommittedWork(commit.parents[0], commit.id, len(changes), came, went)

    def leave(self, *, failed: str | None, goes_on: bool) -> None:
        """Be done with the worktree, as the run says. Its branch stays where that is the only place of its work."""
        if self.prepared is None:
            return
        prepared = self._unleashed(self.prepared)
        if goes_on:
            self._workspaces.leave(prepared, why=failed or "")
            return
        landed = self.landed.commit if self.landed else None
        nothing = self.work is not None and self.work.is_empty and self.work.base == self.begun_from
        elsewhere = self.begun_from if nothing else landed
        untouched = None if self.was_committed else landed
        became = self._workspaces.close(prepared, self.workspace, failed=failed, target=elsewhere, clean_at=untouched)
        if became != "kept" and landed is None and self.work is not None and not self.work.is_empty:
            git = prepared.worktree.repository.git
            git("update-ref", "-m", "agentq: kept", f"refs/heads/{self.branch}", self.work.commit, patient=True)

    def abandon(self) -> None:
        """Another attempt has all of it by now, but for the ports."""
        if self.prepared is not None:
            ports.release_ports(self.prepared.ports.values())

    @staticmethod
    def _unleashed(prepared: PreparedWorktree) -> PreparedWorktree:
        """Cleaning up is to be done also when nobody wants the rest."""
        repository = prepared.worktree.repository
        repository = replace(repository, git=replace(repository.git, leash=GitCancellation()))
        return replace(prepared, worktree=replace(prepared.worktree, repository=repository))
