"""The model: what the runs and workers of a namespace must look like, after every script that the server ran.

It overhears each call with its answer and the events that it appended. An event must be an arrow of the lifecycle that
the script may take, its verb's own conditions must hold here too (below, one method for each verb), and afterwards the
server must say of every live run what the model says. What workers are told is judged in `answers`, the reaper and the
leases in `seats`.
"""

from __future__ import annotations

from copy import deepcopy

from simulation.heard import Event, Heard, arrows, options_of
from simulation.life import Life
from simulation.projects import Projects
from simulation.seats import FOLLOWS

from agentq.coordinator.bounds import KEEP_MS, KEEP_MS_MIN, LOSSES_BEFORE_START, OPEN_SUBMIT_MS
from agentq.coordinator.model.spec import is_function_lane

UNHEARD = {
    "namespace/bootstrap",
    "run/count",
    "queue/list_lanes",
    "limit/list",
    "run/list",
    "queue/pause",
    "queue/resume",
    "session/list",
    "repair/plan",
    "queue/set_weight",
}


class Model(Projects):
    """All that is known of one namespace."""

    def follow(self, heard: Heard, events: list[Event], found: str) -> None:
        """Take in one call: its events, one by one, and all runs as they now stand."""
        self.prepare(heard)
        for event in events:
            self._take(heard, event)
        asleep = self.sleeping_on_it()
        assert not asleep, f"after {heard.script} these wait for what is there: {asleep}"
        expected = "\n".join(sorted([life.line for life in self.runs.values()]))
        if found != expected:
            self._forget(heard, set(found.split("\n")), set(expected.split("\n")))
        self.judge(heard)

    def rewound(self) -> Model:
        """A copy to go back to when the server loses what came after."""
        return deepcopy(self)

    def overdue(self, now: int) -> list[str]:
        """What a full round of the promoter has left undone."""
        late = [(life, life.overdue(now)) for life in self.runs.values()]
        orphans = [child for life in self.runs.values() for child in self.left_behind(life)]
        here = [f"{life.id} is {life.state}: {what} it" for life, what in late if what]
        return [*here, *orphans, *self.kept_waiting(), *self.unplanned()]

    def next_at(self) -> int | None:
        """When time next does something to a run."""
        return min((at for life in self.runs.values() if (at := life.next_at) is not None), default=None)

    # ---- one event

    def _take(self, heard: Heard, event: Event) -> None:
        if event.event == "plan_ended":
            self.end_plan(event)
            return
        if event.event in FOLLOWS:
            self.hear_of_worker(heard, event)
            return
        life = self.runs.get(event.run)
        source = life.state if life else None
        verbs = arrows(event.event, source, event.state, heard.verbs)
        assert verbs, (
            f"{heard.script} took {event.run} from {source} to {event.state} with {event.event!r}: no such arrow"
        )
        verb = verbs[0]
        if {"skip", "expire"} <= set(verbs):
            verb = "skip" if event.detail.startswith("dependency ") else "expire"
        if {"promote", "wake"} <= set(verbs):
            verb = "wake" if event.detail.startswith("child ") else "promote"
        heard.changed.add(event.run)
        if life is None:
            self.submit(heard, event)
            return
        before = life.worker
        getattr(self, verb)(heard, life, event.state)
        worker = life.worker if verb == "claim" else before if verb != "requeue" else event.worker
        assert (event.attempt, event.worker) == (str(life.attempt), worker), f"{event} of {life.line}"
        life.state = event.state
        if not life.held:
            self.leave_line(life)
        if life.ended:
            self._conclude(heard, life)

    def _conclude(self, heard: Heard, life: Life) -> None:
        """It has ended: time forgets it, its key is free, and whoever waits for it is told."""
        life.stop_at = life.due_at = life.until = None
        life.open = life.in_line = life.reserved = False
        life.needs.clear()
        life.ended_at = heard.now
        life.forget_at = heard.now + life.options.get("keep_ms", KEEP_MS)
        self.hand_on(heard, life)
        self.step_back(life)
        for child in self.runs.values():
            if life.id in child.needs:
                child.needs.discard(life.id)
                child.told("completed" if child.follows == life.id else life.state)
        self.come_home(life)
        self.leave_plan(life)

    def _forget(self, heard: Heard, found: set[str], expected: set[str]) -> None:
        """Lines differ. The only change without an event is that an ended run goes, by time or by somebody's word."""
        for line in expected - found:
            life = self.runs[line.partition(" ")[0]]
            due_at = life.forget_at if heard.script == "duty/run_timers" else life.ended_at + KEEP_MS_MIN
            gone = heard.script in ("duty/run_timers", "run/delete") and life.ended and due_at <= heard.now
            may_go = gone and not found - expected - {""}
            assert may_go, f"after {heard.script}: the model has {line!r}, the server {found - expected}"
            assert not self.left_behind(life), f"{life.line} was forgotten, and left {life.children}"
            del self.runs[life.id]
            self.drop_task(life)
            self.effects.pop(life.id, None)
        assert found - expected <= {""}, f"after {heard.script}: the server has {found - expected} more"

    # ---- each verb: what must be true before it, and what it changes

    def submit(self, heard: Heard, event: Event) -> None:
        run, lane, spec, text = heard.row(event.run)
        options, due_at = options_of(text), None
        if "delay_ms" in options or "due_at_ms" in options:
            due_at = heard.now + options["delay_ms"] if "delay_ms" in options else options["due_at_ms"]
        patience = OPEN_SUBMIT_MS if "open" in options else options.get("expires_ms")
        until = None if patience is None else heard.now + patience
        life = Life(run, lane, spec, options, event.state, due_at, until, open="open" in options, begun_at=heard.now)
        life.reach = self.reach_of(heard, options)
        self.begin(life)
        for parent in options.get("after", ()):
            self.wait_for(life, parent)
        self.take_key(heard, life)
        if "agent" in options:
            assert self.sessions[options["session"]].state == "open", f"{run} is a turn of {options['session']}"
            self.line_of(life).append(run)
        waits = "after" in options or life.open or bool(life.follows) or self.is_behind(life)
        due_at = life.due_at
        later = due_at is not None and due_at > heard.now
        if not waits and not later:
            life.in_line = waits = event.state == "blocked"
            wrong = self.must_wait(heard, life) if not waits else not self.may_wait(heard, life)
            assert not wrong, f"{life.line}: {options} under {self.room}"
        assert event.state == ("blocked" if waits else "scheduled" if later else "pending"), f"{life.line}: {options}"
        self.runs[run] = life
        self.be_born(life)
        self.join_plan(life)

    def unblock(self, heard: Heard, life: Life, target: str) -> None:
        assert not life.needs, f"{life.line} waits for {life.needs}"
        assert not life.doomed, f"{life.line} cannot run: a parent has failed it"
        assert not life.open, f"{life.line} has not been sealed"
        assert not self.is_behind(life), f"{life.line} stands behind others: {self.line_of(life)}"
        # Whoever stands in a line has been due; the clock may have been set back since.
        later = not life.in_line and life.due_at is not None and life.due_at > heard.now
        if life.in_line:
            self.let_in(heard, life)
        assert target == ("scheduled" if later else "pending")

    def block(self, heard: Heard, life: Life, target: str) -> None:
        assert target == "blocked"
        assert self.may_wait(heard, life), f"{life.line} was held up, and there is room: {self.room}"
        life.reserved, life.in_line = False, True

    def promote(self, heard: Heard, life: Life, target: str) -> None:
        assert target == "pending"
        assert life.due_at is not None, f"{life.line} waits for no time"
        assert life.due_at <= heard.now, f"{life.line} {life.due_at - heard.now} ms too early"
        assert life.patient(heard.now), f"{life.line} had expired"
        life.due_at = None

    def claim(self, heard: Heard, life: Life, target: str) -> None:
        assert target == "claimed"
        worker, nonce = heard["worker"], heard["nonce"]
        self.may_claim(heard)
        assert not self.is_stopped(life), f"{life.line} was claimed, and its plan stopped"
        assert not self.is_behind(life), f"{life.line} stands behind others: {self.line_of(life)}"
        if "agent.claude" in life.lane:
            self.goes_where_it_must(heard, life)
        repeated = (
            heard.script in ("worker/claim", "worker/finish_and_claim") and f"{heard['epoch']} {nonce}" in self.granted
        )
        assert not repeated, f"{worker} got {life.line} by a call that was answered before"
        assert life.patient(heard.now), f"{life.line} had expired"
        self.take_room(heard, life)
        life.attempt += 1
        life.fence, life.worker = f"{life.attempt}-{nonce}", worker
        life.claimed_at, life.unnamed_at = heard.now, None
        owner = self.fences.setdefault(f"{life.id} {life.fence}", worker)
        assert owner == worker, f"{life.line}: the fence was {owner}'s"

    def start(self, heard: Heard, life: Life, target: str) -> None:
        assert target == "running"
        self.by_its_worker(heard, life)
        assert life.stop_at is None, f"{life.line} was to stop, and started"

    def report(self, heard: Heard, life: Life, target: str) -> None:
        assert target == life.state
        self.by_its_worker(heard, life)
        assert int(heard["number"]) > life.number, f"{life.line} went back from report {life.number}"
        life.number = int(heard["number"])

    def finish(self, heard: Heard, life: Life, target: str) -> None:
        assert target == "completed"
        self.by_its_worker(heard, life)

    def fail(self, heard: Heard, life: Life, target: str) -> None:
        self.by_its_worker(heard, life)
        class_ = heard.of(life.id, "class")
        if life.stop_at is not None or class_ == "cancelled":
            assert target == "cancelled", f"{life.line} was to stop, and is {target}"
            return
        due_at = self._due_after(heard, life, class_)
        again = life.pays(class_) and life.in_time(due_at)
        assert target == ("scheduled" if again else "failed"), f"{life.line}: {class_}, spent {life.spent}"
        if again:
            life.due_at = due_at
            life.spent[life.purse(class_)] += 1
        self.leave(heard, life, "fail", target)

    def _due_after(self, heard: Heard, life: Life, class_: str) -> int:
        asked = heard.of(life.id, "delay_ms")
        spent = life.spent[life.purse(class_)]
        return heard.now + (int(asked) if asked != "" else life.backoff_ms(class_, spent, heard.dice_of(life.id)))

    def defer(self, heard: Heard, life: Life, target: str) -> None:
        self.by_its_worker(heard, life)
        if life.stop_at is None:
            due_at = heard.now + int(heard["delay_ms"]) if heard["delay_ms"] != "" else None
            if heard["due_at_ms"] != "":
                due_at = int(heard["due_at_ms"])
            if due_at is None:
                spent = life.spent[life.purse("limit")]
                due_at = heard.now + life.backoff_ms("limit", spent, float(heard["random"]))
            again = life.pays("limit") and life.in_time(due_at)
            assert target == ("scheduled" if again else "failed"), f"{life.line}: spent {life.spent}"
            life.due_at = due_at
            life.spent[life.purse("limit")] += 1
        self.leave(heard, life, "defer", target)

    def release(self, heard: Heard, life: Life, target: str) -> None:
        if heard.script == "attempt/release":
            self.by_its_worker(heard, life)
        else:
            self.taken_away(heard, life)
            life.fence = ""
        assert target in ("pending", "cancelled")
        self.leave(heard, life, "release", target)

    def lose(self, heard: Heard, life: Life, target: str) -> None:
        self.taken_away(heard, life)
        life.fence = ""
        if life.stop_at is None:
            purse, most = life.purse("lost"), life.most("lost")
            # A call that was only claimed may never have begun; a worker that is there says which have not.
            waited = (
                most > 0
                and life.state == "claimed"
                and is_function_lane(life.lane)
                and heard.script != "worker/heartbeat"
            )
            if waited:
                purse, most = "lost_before_start", LOSSES_BEFORE_START
            spent = life.spent[purse]
            at_once = waited or not spent
            due_at = heard.now + (0 if at_once else life.backoff_ms("lost", spent - 1, float(heard["random"])))
            again = spent < most and life.in_time(due_at)
            expected = "failed" if not again else "pending" if at_once else "scheduled"
            assert target == expected, f"{life.line} is {target} after {spent} of {purse}"
            life.due_at = None if at_once else due_at
            life.spent[purse] += 1
        self.leave(heard, life, "lose", target)

    def expire(self, heard: Heard, life: Life, target: str) -> None:
        if life.held:
            assert target == "cancelled"
            assert life.stop_at is not None, f"{life.line} was never to stop"
            assert life.stop_at <= heard.now, f"{life.line} had time to confirm the stop"
            life.fence = ""
        else:
            assert target == "failed"
            assert not life.patient(heard.now), f"{life.line} expired before its time"

    def skip(self, _: Heard, life: Life, target: str) -> None:
        assert life.doomed, f"{life.line} waits for {life.needs}, none of which failed it"
        assert not self.is_stopped(life), f"{life.line} was skipped in a plan that was stopped"
        assert target == ("failed" if life.on_failed == "fail" else "skipped")

    def requeue(self, heard: Heard, life: Life, target: str) -> None:
        self.begin(life)
        self.speak_anew(life)
        self.begin_task(heard, life)
        self.note_anew(life)
        assert target == ("blocked" if self.is_behind(life) or life.needs else "pending")
        life.fence = life.worker = ""
        life.until = life.due_at = None
        life.number, life.wanted, life.doomed = 0, False, False
        life.spent.clear()
        life.begun_at = heard.now
        named = heard.script == "run/requeue" and heard["id"] == life.id
        life.operation = f"requeue {heard['operation']}" if named else ""
        self.begin_anew(life)
        if "dedupe_key" in life.options:
            key = life.options["dedupe_key"]
            assert self.keys.setdefault(key, life.id) == life.id, f"{life.id} and {self.keys[key]} both have {key}"
            other, until = self.taken.pop(key, (life.id, 0))
            assert other == life.id or until <= heard.now, f"{other} has {key} until {until}, and {life.id} took it"
            life.follows = life.follower = ""
