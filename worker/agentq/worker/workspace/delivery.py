"""Delivers the work of an attempt with a workspace, from the claim to the target branch. Its steps:

1. prepare   a worktree from the base, or continue in the one of an earlier attempt
2. execute   the process in it; not again once its work is committed
3. commit    its work, on a branch of its own
4. line up   in the merge queue of the target
5. merge     onto the target's tip, in no checkout of a person
6. check     the merged work, in the worktree for merges
7. move      the target, by compare-and-swap; then push, then run the command after the merge
8. close     report the outcome, which releases dependents, and only then clean up

Each step is recorded with the run before it starts, and appears in the run's log and progress. If the worker is killed
at any point, the next attempt continues, on any host: it looks for the run's trailer in the target first.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from agentq.coordinator.bounds import ERROR_CHARACTERS
from agentq.coordinator.errors import Invalid, NotFound, Refused, Stopping
from agentq.coordinator.model.lifecycle import COMPLETING_CLASSES, OutcomeClass
from agentq.coordinator.model.spec import Outcome, RunSpec
from agentq.coordinator.runs.merge_progress import MergeProgress, RepairReason
from agentq.worker.attempt_stop import NotStarted
from agentq.worker.workspace.git.git_command import GitCancellation, GitCancelled, GitFailed
from agentq.worker.workspace.merge.landing import AlreadyMerged, CheckRejected
from agentq.worker.workspace.merge.merge_check import MergeCheck
from agentq.worker.workspace.merge.merge_queue import MergeQueuePlace
from agentq.worker.workspace.merge.rebase import MergeConflict
from agentq.worker.workspace.merge.work_commit import CommittedWork, Undeliverable
from agentq.worker.workspace.repair import build_repair_prompt, find_unresolved
from agentq.worker.workspace.run_workspace import DeliveryStage, RunWorkspace
from agentq.worker.workspace.workspace_attempt import WorkspaceAttempt
from agentq.worker.workspace.workspace_commands import CommandStopped, WorkspaceCommands

if TYPE_CHECKING:
    from agentq.worker.workspace.resolver_agent import ResolverAgent

ExecuteProcess = Callable[[Callable[[RunSpec], RunSpec]], Awaitable[Outcome]]
"""Executes the process; its argument places the spec in the worktree."""
NO_CHANGES_ERROR = "it changed nothing, and did not declare that that is right"


class DeliveryStopped(Exception):
    """The attempt is stopped before the target has moved."""


class WorkDelivery:
    """Delivers the work of one attempt. Lives on the worker's event loop; calls git in threads."""

    def __init__(self, attempt: WorkspaceAttempt, spec: RunSpec) -> None:
        assert spec.workspace is not None
        context, claim = attempt.context, attempt.claim
        self.workspace = spec.workspace
        self.cancellation = GitCancellation()
        """Ends git commands when the attempt is stopped."""
        self._spec = spec
        self._attempt = attempt
        self._claim = claim
        self._queue = context.queue
        self._call_blocking = context.workspaces.call_blocking
        marks = context.environment.marks(claim)
        self._run_workspace = RunWorkspace(
            claim.id, spec, context.workspaces, context.workspaces.git(spec.workspace, marks, self.cancellation)
        )
        self._commands = WorkspaceCommands(attempt, spec, self._run_workspace)
        self._resolver: ResolverAgent | None = None
        if spec.workspace.on_conflict == "resolver":
            from agentq.worker.workspace.resolver_agent import ResolverAgent

            self._resolver = ResolverAgent(attempt, spec, self._commands)
        self._progress: MergeProgress | None = None
        self._repair: RepairReason | None = None
        self._outcome = Outcome()
        """The outcome of its process, once it has ended."""
        self._continues_later = False
        """Another attempt will continue in the worktree."""
        self._is_closed = False

    @property
    def repair_prompt(self) -> str | None:
        """The prompt for an agent that has to repair its work, in place of its own."""
        return None if self._repair is None else build_repair_prompt(self._repair, self.workspace)

    async def run(self, execute: ExecuteProcess) -> Outcome:
        """Run all steps up to the target; returns the outcome of the attempt."""
        try:
            return await self._run(execute)
        except Stopping as stopping:
            self._attempt.on_refused(stopping)
            return self._attempt.interrupt()
        except (GitCancelled, CommandStopped, DeliveryStopped):
            return self._attempt.interrupt()
        except NotStarted as undone:
            # Another attempt begins what this one did not; otherwise there is an outcome.
            if undone.outcome.class_ is OutcomeClass.CANCELLED:
                return self._attempt.interrupt()
            raise
        except (Refused, Invalid, NotFound, Undeliverable) as refused:
            return self._build_failure(OutcomeClass.REJECTED, str(refused))
        except (GitFailed, OSError) as failed:
            return self._build_failure(OutcomeClass.INTERNAL, str(failed))

    async def hand_over(self, outcome: Outcome) -> None:
        """Before the final report: after it, another attempt may continue in the worktree, on any host."""
        if self._continues_later or self._attempt.continues_later:
            await self._close_workspace(outcome, continues=True)

    async def close(self, outcome: Outcome) -> None:
        """After the final report, while dependents already start: clean up."""
        if not self._is_closed:
            await self._close_workspace(outcome, continues=False)

    async def _close_workspace(self, outcome: Outcome, *, continues: bool) -> None:
        self._is_closed = True
        if self._attempt.superseded:
            self._run_workspace.abandon()
            return
        failed = None if outcome.class_ in COMPLETING_CLASSES else outcome.error or str(outcome.class_)
        try:
            await self._call_blocking(self._run_workspace.close, failed=failed, continues=continues)
        except (GitFailed, OSError, Refused, Invalid, NotFound) as error:
            self._attempt.note(f"its worktree stays for now: {error}")

    async def _run(self, execute: ExecuteProcess) -> Outcome:
        progress = self._progress = await self._attempt.ask_server(partial(self._queue.intent, self._claim))
        stage = await self._call_blocking(self._run_workspace.find_stage, progress)
        if self._spec.plan is not None and stage is not DeliveryStage.DELIVERED:
            await self._pin_base(begins=stage is DeliveryStage.EXECUTE)
        self._outcome = outcome = (progress.outcome if progress else None) or Outcome()
        if stage is DeliveryStage.EXECUTE:
            executed = await self._prepare_and_execute(execute)
            if not self._attempt.delivers(executed):
                return executed
            self._outcome = outcome = executed
        if stage is DeliveryStage.DELIVERED:
            self._attempt.note(f"its work is in {self.workspace.target} already")
            return await self._finish_merged(outcome)
        return await self._deliver(outcome)

    # ---- prepare and execute

    async def _pin_base(self, *, begins: bool) -> None:
        """Pin the base: all tasks of a plan begin from one commit, even if the branch of that name moves."""
        workspace = self._run_workspace
        pin = partial(self._queue.pin, self._claim, workspace.base_key)
        pinned = await self._attempt.ask_server(pin)
        if pinned is None and begins:
            commit = await self._call_blocking(workspace.resolve_base)
            pinned = await self._attempt.ask_server(partial(pin, commit))
        workspace.plan_base = pinned
        if pinned is not None:
            await self._call_blocking(workspace.resolve_base)  # a copy may not have it yet

    async def _prepare_and_execute(self, execute: ExecuteProcess) -> Outcome:
        before = self._progress
        repair = before.repair if before is not None and before.step == "prepared" else None
        self._attempt.progress("prepares its worktree")
        self._repair = await self._call_blocking(
            self._run_workspace.prepare, before, repair, continues_earlier=self._attempt.continues_earlier
        )
        for sentence in self._run_workspace.notes:
            self._attempt.note(sentence)
        outcome = before.outcome if before is not None and repair is not None else None
        commit = before.commit if before is not None and repair is not None else None
        await self._record_progress("prepared", commit=commit, repair=self._repair, outcome=outcome)
        if self._repair is not None and self._repair.what == "conflict" and not self._repair.files:
            # The target has changed meanwhile and the conflict is gone: there is nothing to resolve.
            self._attempt.note(f"its work does not conflict with {self.workspace.target} any more")
            return outcome or Outcome()
        await self._commands.set_up()
        if self._repair is not None and self._resolver is not None and self._repair.what == "conflict":
            self._continues_later = True
            error = await self._resolver.resolve(build_repair_prompt(self._repair, self.workspace))
            self._continues_later = error is not None
            return outcome or Outcome() if error is None else self._build_failure(OutcomeClass.CONFLICT, error)
        self._attempt.progress(f"works in {self._run_workspace.path}")
        self._attempt.check_not_stopped()
        return await execute(self._run_workspace.place_spec)

    async def _deliver(self, outcome: Outcome) -> Outcome:
        """The process has ended well, now or in an earlier attempt: commit and merge its work."""
        workspace, target = self._run_workspace, self.workspace.target
        try:
            work = workspace.work or await self._commit(outcome)
            if work.is_empty and self._attempt.expects_changes(outcome):
                return self._build_failure(OutcomeClass.NO_OUTPUT, NO_CHANGES_ERROR)
            if work.is_empty or not workspace.merges:
                return await self._finish_unmerged(outcome, work)
            return await self._merge(outcome, work)
        except Undeliverable as left:
            if not left.conflicts:
                raise
            repair = RepairReason(what="conflict", target=workspace.worktree.base, files=left.conflicts)
            return await self._send_back(outcome, str(left), repair)
        except MergeConflict as conflict:
            repair = RepairReason(what="conflict", target=workspace.tip, files=conflict.files)
            return await self._send_back(outcome, f"its work does not fit into {target}: {conflict}", repair)
        except CheckRejected as rejected:
            repair = RepairReason(what="check", target=workspace.tip, why=str(rejected), told=rejected.output)
            return await self._send_back(outcome, f"{rejected} when its work was put onto {target}", repair)

    async def _commit(self, outcome: Outcome) -> CommittedWork:
        if self._repair is not None:
            unresolved = await self._call_blocking(find_unresolved, self._run_workspace.worktree, self._repair)
            if unresolved:
                raise Undeliverable(f"conflicts are left in {', '.join(unresolved[:3])}", conflicts=unresolved)
        self._attempt.progress("commits its work")
        await self._record_progress("executed", outcome=outcome)
        work = await self._call_blocking(self._run_workspace.commit)
        for sentence in work.notes:
            self._attempt.note(sentence)
        await self._record_progress("committed", commit=None if work.is_empty else work.commit, outcome=outcome)
        return work

    async def _finish_unmerged(self, outcome: Outcome, work: CommittedWork) -> Outcome:
        """There is nothing to merge, or no target."""
        if not work.is_empty and self._run_workspace.is_shared:
            await self._call_blocking(self._run_workspace.push)
        await self._record_progress("merged", outcome=outcome)
        return outcome.model_copy(update={"work": self._run_workspace.describe_work()})

    # ---- line up, merge, check, move

    async def _merge(self, outcome: Outcome, work: CommittedWork) -> Outcome:
        workspace, target = self._run_workspace, self.workspace.target
        piece, offer = (
            await self._call_blocking(workspace.build_piece, work),
            await self._call_blocking(workspace.build_offer, work),
        )
        queue = MergeQueuePlace(self._queue, self._attempt, self.workspace, workspace.repository)
        if not await queue.wait_for_turn(offer, f"refs/heads/{workspace.branch}"):
            raise DeliveryStopped
        self._attempt.progress(f"is being merged into {target}")
        landing = workspace.build_landing(self._attempt.note)

        async def record_move(_: str, old: str | None) -> None:
            self._attempt.check_not_stopped()
            await self._record_progress("merging", commit=work.commit, target_before=old, outcome=outcome)

        check = self._build_check().check if self.workspace.check else None
        try:
            workspace.delivered = await landing.land(piece, record_move, check, queue.companions)
            self._attempt.note(f"merged into {target} as {workspace.delivered.commit[:12]}")
        except AlreadyMerged:
            workspace.work = replace(work, commit=work.base)
            self._attempt.note(f"{target} has the same change already; nothing of it is left to merge")
        await self._attempt.ask_server(lambda: self._queue.step_aside(self._claim, queue.name))
        return await self._finish_merged(outcome)

    def _build_check(self) -> MergeCheck:
        return MergeCheck(self.workspace, self._commands, self._run_workspace.open_merge_worktree, self._call_blocking)

    async def _finish_merged(self, outcome: Outcome) -> Outcome:
        """The target has the work."""
        landed = self._run_workspace.delivered
        if (
            landed is not None
            and self.workspace.after_merge
            and (self._progress is None or self._progress.step != "merged")
        ):
            await self._commands.after_merge(landed.commit)
        await self._record_progress("merged", outcome=outcome)
        work = await self._call_blocking(self._run_workspace.describe_work)
        if work.removes:
            self._attempt.note(f"it removes what other tasks of the plan made: {', '.join(work.removes)}")
        return outcome.model_copy(update={"work": work})

    # ---- what does not get in

    async def _send_back(self, outcome: Outcome, sentence: str, repair: RepairReason) -> Outcome:
        """Send work back to the agent in its conversation, or to another attempt; or fail. It stays on its branch."""
        class_ = OutcomeClass.CONFLICT if repair.what == "conflict" else OutcomeClass.CHECK
        policy = self.workspace.on_conflict if repair.what == "conflict" else self.workspace.on_check
        self._continues_later = policy == "resolver" or (policy == "agent" and self._spec.kind == "agent")
        commit = self._progress.commit if self._progress else None
        await self._record_progress(
            "prepared", commit=commit, repair=repair if self._continues_later else None, outcome=outcome
        )
        return self._build_failure(class_, f"{sentence}; its work is on the branch {self._run_workspace.branch}")

    def _build_failure(self, class_: OutcomeClass, sentence: str) -> Outcome:
        """A failed outcome, with what is known of the process and the work."""
        fields = {"class_": class_, "error": sentence[:ERROR_CHARACTERS]}
        work = {"work": self._run_workspace.describe_work()} if self._run_workspace.work is not None else {}
        return self._outcome.model_copy(update={**fields, **work})

    async def _record_progress(self, step: str, **fields: object) -> None:
        before = self._progress
        known = self._run_workspace.progress_fields()
        kept = {"base": before.base if before else None}
        merged = {name: value for name, value in {**kept, **known, **fields}.items() if value is not None}
        progress = MergeProgress.model_validate({"step": step, **merged})
        await self._attempt.ask_server(lambda: self._queue.intend(self._claim, progress))
        self._progress = progress
