"""Plans, merge lines and notes of workspaces, as the model sees them: what begins, what must not, and who is next."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from simulation.heard import Event, Heard
from simulation.life import Life
from simulation.talks import Talks

from agentq.coordinator.bounds import STOP_DEADLINE_MS


@dataclass(slots=True)
class Project:
    """A plan."""

    on_failed: str
    sealed: bool = False
    stopped: str = ""
    """The word that it ends with since it was stopped."""
    ended: str = ""
    tasks: dict[str, str] = field(default_factory=dict)


class Projects(Talks):
    """The part of the model that knows plans, and who may move a branch."""

    def __init__(self, *, gap_ms: int, lease_ms: int, grace_ms: int, forget_ms: int) -> None:
        super().__init__(gap_ms=gap_ms, lease_ms=lease_ms, grace_ms=grace_ms, forget_ms=forget_ms)
        self.plans: dict[str, Project] = {}
        self.notes: dict[str, dict[str, Any]] = {}
        """What attempts have noted of the workspace of a run."""
        self.lines: dict[str, list[str]] = {}
        """Those who want to move a branch, the first first."""
        self.next_up: dict[str, str] = {}
        """Run → its fence, where its turn has come and its worker has not yet been told."""

    # ---- plans

    def plan_of(self, life: Life) -> Project | None:
        return self.plans.get(life.options["plan"]) if "task" in life.options else None

    def is_stopped(self, life: Life) -> bool:
        plan = self.plan_of(life)
        return plan is not None and bool(plan.stopped)

    def lives_of(self, plan: Project) -> list[Life]:
        return [self.runs[run] for run in plan.tasks.values()]

    def fails(self, life: Life) -> list[str]:
        """What it waits for that has ended without completing."""
        if life.on_failed == "run":
            return []
        found = [self.runs.get(parent) for parent in life.options.get("after", ())]
        return [parent.line for parent in found if parent is not None and parent.ended and parent.state != "completed"]

    def join_plan(self, life: Life) -> None:
        if "task" not in life.options:
            return
        plan = self.plans[life.options["plan"]]
        assert not plan.stopped, f"{life.line} is a task of a plan that was stopped"
        other = plan.tasks.setdefault(life.options["task"], life.id)
        assert other == life.id, f"{other} and {life.id} are the same task"
        plan.ended = ""

    def leave_plan(self, life: Life) -> None:
        """A task has ended."""
        plan = self.plan_of(life)
        if plan is not None and life.state == "failed" and plan.on_failed == "fail-plan" and not plan.stopped:
            plan.stopped = "failed"

    def end_plan(self, event: Event) -> None:
        plan = self.plans[event.plan]
        lives = self.lives_of(plan)
        assert plan.sealed or plan.stopped, f"{event} of a plan that is open"
        assert not plan.ended, f"{event} of one that was {plan.ended} already"
        assert all(life.ended for life in lives), f"{event}, and there are {[life.line for life in lives]}"
        whole = bool(lives) and all(life.state == "completed" for life in lives)
        assert event.state == ("completed" if whole else plan.stopped or "failed"), f"{event} of {plan}"
        plan.ended = event.state

    def cancel(self, heard: Heard, life: Life, target: str) -> None:
        named = heard.script == "run/cancel" and heard["id"] == life.id
        if named or not self.is_stopped(life):
            super().cancel(heard, life, target)
        elif target != "cancelled":
            assert life.stop_at is None, f"{life.line} was ordered to stop already"
            life.stop_at, life.stop_told = heard.now + STOP_DEADLINE_MS, False

    def begin_task(self, heard: Heard, life: Life) -> None:
        """A task begins again, by its name or because it can: what it waits for lives, or has completed."""
        plan = self.plan_of(life)
        if plan is None:
            return
        named = heard.script == "run/requeue" and heard["id"] == life.id
        assert not plan.stopped or plan.ended, f"{life.line} begins while its plan is being stopped"
        assert named or life.state != "completed", f"{life.line} had completed, and nobody asked for it"
        assert named or not self.fails(life), f"{life.line} begins again though {self.fails(life)}"
        for parent in life.options.get("after", ()):
            if parent in self.runs and not self.runs[parent].ended:
                life.needs.add(parent)
        plan.ended = plan.stopped = ""

    def drop_task(self, life: Life) -> None:
        """A task is forgotten."""
        self.notes.pop(life.id, None)
        plan = self.plan_of(life)
        if plan is not None:
            assert plan.ended, f"{life.line} was forgotten while its plan goes on"
            del plan.tasks[life.options["task"]]
            if not plan.tasks:
                del self.plans[life.options["plan"]]

    def unplanned(self) -> list[str]:
        """What should have been stopped, or come back, by now."""
        late = []
        for plan in self.plans.values():
            lives = self.lives_of(plan)
            if plan.stopped and not plan.ended:
                late += [f"{life.line}: its plan was stopped" for life in lives if not life.ended and not life.stop_at]
            elif not plan.stopped:
                lost = [life for life in lives if life.state == "skipped" and "agent" not in life.options]
                late += [f"{life.line}: nothing keeps it" for life in lost if self._could_begin(life)]
        return late

    def _could_begin(self, life: Life) -> bool:
        here = all(parent in self.runs for parent in life.options.get("after", ()))
        return here and not self.fails(life)

    # ---- merge lines

    def leave_line(self, life: Life) -> None:
        """It is held no more, or has gone: whoever is now the first must be told."""
        self.next_up.pop(life.id, None)
        for line in self.lines.values():
            if life.id in line:
                first = line[0] == life.id
                line.remove(life.id)
                if first and line:
                    self.next_up[line[0]] = self.runs[line[0]].fence

    def answer_merge_enter_queue(self, heard: Heard) -> None:
        life = self._speaker(heard) if heard.reply != "stopping" else self.runs[heard["id"]]
        if life is None:
            return
        line = self.lines.setdefault(heard["line"], [])
        if heard.reply == "stopping":
            assert life.stop_at is not None, f"{life.line} is not to stop"
            self.leave_line(life)
            return
        assert life.stop_at is None, f"{life.line} is to stop, and got {heard.reply}"
        if life.id not in line:
            self.leave_line(life)
            line.append(life.id)
        _, place, holder, *others = heard.reply
        assert (place, holder) == (line.index(life.id), line[0]), f"{heard.reply} in {line}"
        assert others[::3] == (line[1:] if holder == life.id else []), f"{heard.reply} in {line}"

    def answer_merge_leave_queue(self, heard: Heard) -> None:
        life = self._speaker(heard)
        if life is not None:
            assert heard.reply == "ok"
            if life.id in self.lines.get(heard["line"], ()):
                self.leave_line(life)

    def answer_worker_heartbeat(self, heard: Heard) -> None:
        super().answer_worker_heartbeat(heard)
        if heard.refusal is not None:
            return
        _, _, _, number, *flat = heard.reply
        orders = [flat[2 * number :][at : at + 5] for at in range(0, len(flat) - 2 * number, 5)]
        told = {(run, fence) for _, order, run, fence, _ in orders if order == "merge"}
        for run, fence in list(self.next_up.items()):
            if self.runs[run].worker == heard["worker"]:
                assert (run, fence) in told, f"it is the turn of {run}, and {heard['worker']} is not told"
                del self.next_up[run]

    # ---- notes

    def answer_merge_record_step(self, heard: Heard) -> None:
        if self._speaker(heard) is not None:
            assert heard.reply == "ok"
            self.notes[heard["id"]] = json.loads(heard["merge_progress"])

    def answer_merge_get_step(self, heard: Heard) -> None:
        if self._speaker(heard) is not None:
            found = json.loads(heard.reply[1]) if heard.reply[1] else None
            assert found == self.notes.get(heard["id"]), f"{heard.reply}, not {self.notes.get(heard['id'])}"

    def note_anew(self, life: Life) -> None:
        if life.id in self.notes:
            kept = {name: value for name, value in self.notes[life.id].items() if isinstance(value, str)}
            self.notes[life.id] = {**kept, "step": "requeued"}

    # ---- what clients say of plans

    def prepare(self, heard: Heard) -> None:
        super().prepare(heard)
        plan = self.plans.get(heard["plan"]) if heard.script in ("plan/create", "plan/seal", "plan/cancel") else None
        if heard.script == "plan/create" and heard.refusal is None and plan is None:
            self.plans[heard["plan"]] = Project(heard["on_failed"])
        elif plan is not None and heard.script == "plan/seal" and heard.reply == "ok":
            plan.sealed = True
        elif plan is not None and heard.script == "plan/cancel" and not plan.ended and not plan.stopped:
            plan.stopped = "cancelled"

    def answer_plan_cancel(self, heard: Heard) -> None:
        plan = self.plans.get(heard["plan"])
        if plan is None:
            assert heard.reply == "not_found", heard.reply
        elif heard.reply.startswith("wrong_state"):
            assert heard.reply == f"wrong_state {plan.ended}"
            assert not plan.stopped
        else:
            assert plan.stopped, f"{heard.reply} of {plan}"

    def answer_plan_retry(self, heard: Heard) -> None:
        plan = self.plans.get(heard["plan"])
        if plan is None:
            assert heard.reply == "not_found", heard.reply
        elif heard.reply.startswith("plan_stopping"):
            assert plan.stopped, f"{plan} is not being stopped"
            assert not plan.ended

    def refused_task(self, options: dict[str, Any], word: str, other: str) -> None:
        """A task was refused."""
        plan = self.plans.get(options["plan"])
        if word == "no_plan":
            # One that nothing ever came of is forgotten by itself.
            assert plan is None or not plan.tasks, f"{other} exists"
        elif word == "closed_plan":
            assert plan is not None
            assert plan.stopped, f"{other} was not stopped"
        else:
            assert plan is not None
            assert plan.tasks[options["task"]] == other
