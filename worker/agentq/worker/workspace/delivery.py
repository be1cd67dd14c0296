"""From the claim to the work in the target: the way of an attempt that has a workspace. Its steps:

1. prepare   a worktree from the base; or the one that an earlier attempt left, where the run goes on in it
2. execute   the process, in it; not again once its work is committed
3. commit    what it left, on a branch of its own
4. line up   for the target, with all who want to move it
5. merge     onto the target's tip, in no checkout of anybody's
6. check     the merged work, in a worktree of the merges' own
7. move      the target, from where it was seen; then the push, and the command that comes after
8. leave     say how it ended, which lets its dependents go, and only then clean up

Each step is noted with the run before it is taken, and says what it does in the run's log and progress. Killed at any
point, the run is gone on with by the next attempt, wherever that is: it looks for the trailer in the target first.
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
"""Executes the process; given how to say where."""
NO_CHANGES_ERROR = "it changed nothing, and did not declare that that is right"


class DeliveryStopped(Exception):
    """The attempt is stopped before the target has moved."""


class WorkDelivery:
    """Of one attempt; lives on the worker's event loop, and has git run in threads."""

    def __init__(self, attempt: WorkspaceAttempt, spec: RunSpec) -> None:
        assert spec.workspace is not None
        around, claim = attempt.context, attempt.claim
        self.workspace = spec.workspace
        self.leash = GitCancellation()
        """What ends the git of an attempt that is stopped."""
        self._spec = spec
        self._attempt = attempt
        self._claim = claim
        self._queue = around.queue
        self._calling = around.workspaces.calling
        marks = around.environment.marks(claim)
        self._place = RunWorkspace(
            claim.id, spec, around.workspaces, around.workspaces.git(spec.workspace, marks, self.leash)
        )
        self._errands = WorkspaceCommands(attempt, spec, self._place)
        self._resolver: ResolverAgent | None = None
        if spec.workspace.on_conflict == "resolver":
            from agentq.worker.workspace.resolver_agent import ResolverAgent

            self._resolver = ResolverAgent(attempt, spec, self._errands)
        self._intent: MergeProgress | None = None
        self._mend: RepairReason | None = None
        self._outcome = Outcome()
        """How its process ended, once it has."""
        self._goes_on = False
        """Another attempt goes on in the worktree."""
        self._has_left = False

    @property
    def asked(self) -> str | None:
        """What an agent is to be asked in place of its prompt, if there is something to mend."""
        return None if self._mend is None else build_repair_prompt(self._mend, self.workspace)

    async def run(self, execute: ExecuteProcess) -> Outcome:
        """All of it; how the attempt ended."""
        try:
            return await self._run(execute)
        except Stopping as stopping:
            self._attempt.on_refused(stopping)
            return self._attempt.interrupt()
        except (GitCancelled, CommandStopped, DeliveryStopped):
            return self._attempt.interrupt()
        except NotStarted as undone:
            # What does not begin for nobody is begun by another attempt; or there is an outcome.
            if undone.outcome.class_ is OutcomeClass.CANCELLED:
                return self._attempt.interrupt()
            raise
        except (Refused, Invalid, NotFound, Undeliverable) as refused:
            return self._failed(OutcomeClass.REJECTED, str(refused))
        except (GitFailed, OSError) as failed:
            return self._failed(OutcomeClass.INTERNAL, str(failed))

    async def hand_on(self, outcome: Outcome) -> None:
        """Before the last word: another attempt that is to go on in the worktree may begin with that, anywhere."""
        if self._goes_on or self._attempt.continues_later:
            await self._left(outcome, goes_on=True)

    async def leave(self, outcome: Outcome) -> None:
        """The last word is said, and dependents begin: clean up, as far as that goes."""
        if not self._has_left:
            await self._left(outcome, goes_on=False)

    async def _left(self, outcome: Outcome, *, goes_on: bool) -> None:
        self._has_left = True
        if self._attempt.superseded:
            self._place.abandon()
            return
        failed = None if outcome.class_ in COMPLETING_CLASSES else outcome.error or str(outcome.class_)
        try:
            await self._calling(self._place.leave, failed=failed, goes_on=goes_on)
        except (GitFailed, OSError, Refused, Invalid, NotFound) as error:
            self._attempt.note(f"its worktree stays for now: {error}")

    async def _run(self, execute: ExecuteProcess) -> Outcome:
        intent = self._intent = await self._attempt.ask_server(partial(self._queue.intent, self._claim))
        way = await self._calling(self._place.find, intent)
        if self._spec.plan is not None and way is not DeliveryStage.DELIVERED:
            await self._pin_base(begins=way is DeliveryStage.EXECUTE)
        self._outcome = outcome = (intent.outcome if intent else None) or Outcome()
        if way is DeliveryStage.EXECUTE:
            ended = await self._executed(execute)
            if not self._attempt.delivers(ended):
                return ended
            self._outcome = outcome = ended
        if way is DeliveryStage.DELIVERED:
            self._attempt.note(f"its work is in {self.workspace.target} already")
            return await self._is_in(outcome)
        return await self._deliver(outcome)

    # ---- prepare and execute

    async def _pin_base(self, *, begins: bool) -> None:
        """All tasks of a plan begin from one commit, whatever comes into the branch of that name meanwhile."""
        place = self._place
        pin = partial(self._queue.pin, self._claim, place.base_place)
        pinned = await self._attempt.ask_server(pin)
        if pinned is None and begins:
            commit = await self._calling(place.resolve_base)
            pinned = await self._attempt.ask_server(partial(pin, commit))
        place.plan_base = pinned
        if pinned is not None:
            await self._calling(place.resolve_base)  # a copy may not have it yet

    async def _executed(self, execute: ExecuteProcess) -> Outcome:
        before = self._intent
        mend = before.mend if before is not None and before.step == "prepared" else None
        self._attempt.progress("prepares its worktree")
        self._mend = await self._calling(self._place.prepare, before, mend, goes_on=self._attempt.continues_earlier)
        for sentence in self._place.notes:
            self._attempt.note(sentence)
        outcome = before.outcome if before is not None and mend is not None else None
        commit = before.commit if before is not None and mend is not None else None
        await self._intend("prepared", commit=commit, mend=self._mend, outcome=outcome)
        if self._mend is not None and self._mend.what == "conflict" and not self._mend.files:
            # What it conflicted with has changed meanwhile: there is nothing to ask anybody.
            self._attempt.note(f"its work does not conflict with {self.workspace.target} any more")
            return outcome or Outcome()
        await self._errands.set_up()
        if self._mend is not None and self._resolver is not None and self._mend.what == "conflict":
            self._goes_on = True
            error = await self._resolver.resolve(build_repair_prompt(self._mend, self.workspace))
            self._goes_on = error is not None
            return outcome or Outcome() if error is None else self._failed(OutcomeClass.CONFLICT, error)
        self._attempt.progress(f"works in {self._place.path}")
        self._attempt.check_not_stopped()
        return await execute(self._place.placed)

    async def _deliver(self, outcome: Outcome) -> Outcome:
        """The process has ended well, or had: bring in what it made."""
        place, target = self._place, self.workspace.target
        try:
            work = place.work or await self._committed(outcome)
            if work.is_empty and self._attempt.expects_changes(outcome):
                return self._failed(OutcomeClass.NO_OUTPUT, NO_CHANGES_ERROR)
            if work.is_empty or not place.goes_somewhere:
                return await self._stays(outcome, work)
            return await self._merged(outcome, work)
        except Undeliverable as left:
            if not left.conflicts:
                raise
            mend = RepairReason(what="conflict", target=place.worktree.base, files=left.conflicts)
            return await self._goes_back(outcome, str(left), mend)
        except MergeConflict as conflict:
            mend = RepairReason(what="conflict", target=place.tip, files=conflict.files)
            return await self._goes_back(outcome, f"its work does not fit into {target}: {conflict}", mend)
        except CheckRejected as rejected:
            mend = RepairReason(what="check", target=place.tip, why=str(rejected), told=rejected.told)
            return await self._goes_back(outcome, f"{rejected} when its work was put onto {target}", mend)

    async def _committed(self, outcome: Outcome) -> CommittedWork:
        if self._mend is not None:
            left = await self._calling(find_unresolved, self._place.worktree, self._mend)
            if left:
                raise Undeliverable(f"conflicts are left in {', '.join(left[:3])}", conflicts=left)
        self._attempt.progress("commits its work")
        await self._intend("executed", outcome=outcome)
        work = await self._calling(self._place.commit)
        for sentence in work.notes:
            self._attempt.note(sentence)
        await self._intend("committed", commit=None if work.is_empty else work.commit, outcome=outcome)
        return work

    async def _stays(self, outcome: Outcome, work: CommittedWork) -> Outcome:
        """There is nothing to merge, or nowhere."""
        if not work.is_empty and self._place.is_shared:
            await self._calling(self._place.push)
        await self._intend("merged", outcome=outcome)
        return outcome.model_copy(update={"work": self._place.told()})

    # ---- line up, merge, check, move

    async def _merged(self, outcome: Outcome, work: CommittedWork) -> Outcome:
        place, target = self._place, self.workspace.target
        piece, offer = await self._calling(place.piece, work), await self._calling(place.offer, work)
        line = MergeQueuePlace(self._queue, self._attempt, self.workspace, place.repository)
        if not await line.turn(offer, f"refs/heads/{place.branch}"):
            raise DeliveryStopped
        self._attempt.progress(f"is being merged into {target}")
        landing = place.landing(self._attempt.note)

        async def note(_: str, old: str | None) -> None:
            self._attempt.check_not_stopped()
            await self._intend("merging", commit=work.commit, target_before=old, outcome=outcome)

        check = self._checking().check if self.workspace.check else None
        try:
            place.landed = await landing.land(piece, note, check, line.companions)
            self._attempt.note(f"merged into {target} as {place.landed.commit[:12]}")
        except AlreadyMerged:
            place.work = replace(work, commit=work.base)
            self._attempt.note(f"{target} has the same change already; nothing of it is left to merge")
        await self._attempt.ask_server(lambda: self._queue.step_aside(self._claim, line.name))
        return await self._is_in(outcome)

    def _checking(self) -> MergeCheck:
        return MergeCheck(self.workspace, self._errands, self._place.bench, self._calling)

    async def _is_in(self, outcome: Outcome) -> Outcome:
        """The target has it."""
        landed = self._place.landed
        if (
            landed is not None
            and self.workspace.after_merge
            and (self._intent is None or self._intent.step != "merged")
        ):
            await self._errands.after_merge(landed.commit)
        await self._intend("merged", outcome=outcome)
        work = await self._calling(self._place.told)
        if work.removes:
            self._attempt.note(f"it removes what other tasks of the plan made: {', '.join(work.removes)}")
        return outcome.model_copy(update={"work": work})

    # ---- what does not get in

    async def _goes_back(self, outcome: Outcome, sentence: str, mend: RepairReason) -> Outcome:
        """To the agent in its conversation, or to another attempt; or nobody mends it. Its work stays on its branch."""
        class_ = OutcomeClass.CONFLICT if mend.what == "conflict" else OutcomeClass.CHECK
        word = self.workspace.on_conflict if mend.what == "conflict" else self.workspace.on_check
        self._goes_on = word == "resolver" or (word == "agent" and self._spec.kind == "agent")
        commit = self._intent.commit if self._intent else None
        await self._intend("prepared", commit=commit, mend=mend if self._goes_on else None, outcome=outcome)
        return self._failed(class_, f"{sentence}; its work is on the branch {self._place.branch}")

    def _failed(self, class_: OutcomeClass, sentence: str) -> Outcome:
        """How the attempt ended, with what is known of its process and of its work."""
        told = {"class_": class_, "error": sentence[:ERROR_CHARACTERS]}
        work = {"work": self._place.told()} if self._place.work is not None else {}
        return self._outcome.model_copy(update={**told, **work})

    async def _intend(self, step: str, **fields: object) -> None:
        before = self._intent
        known = self._place.noted()
        kept = {"base": before.base if before else None}
        told = {name: value for name, value in {**kept, **known, **fields}.items() if value is not None}
        intent = MergeProgress.model_validate({"step": step, **told})
        await self._attempt.ask_server(lambda: self._queue.intend(self._claim, intent))
        self._intent = intent
