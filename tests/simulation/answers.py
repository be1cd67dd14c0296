"""What callers are told: every answer must be what the model knows, whether it grants, repeats or refuses."""

from __future__ import annotations

from typing import Any

from simulation.heard import Heard, options_of
from simulation.life import Life
from simulation.rights import fields_beyond
from simulation.room import Room

from agentq.coordinator.bounds import CHILD_DEPTH_MAX
from agentq.coordinator.model.spec import RunSpec

WORKERS_WORDS = {
    "attempt/start",
    "attempt/report_progress",
    "attempt/finish",
    "attempt/fail",
    "attempt/defer",
    "attempt/release",
    "attempt/park",
    "worker/finish_and_claim",
}


class Answers(Room):
    """The part of the model that judges replies."""

    def __init__(self, *, gap_ms: int, lease_ms: int, grace_ms: int, forget_ms: int) -> None:
        super().__init__(gap_ms=gap_ms, lease_ms=lease_ms, grace_ms=grace_ms, forget_ms=forget_ms)
        self.keys: dict[str, str] = {}
        """Dedupe key → the live run that has it."""
        self.taken: dict[str, tuple[str, int]] = {}
        """Dedupe key → a run that has ended, and until when the key stays taken by it."""
        self.granted: set[str] = set()
        """Claims that were answered with runs, as epoch and nonce."""
        self.effects: dict[str, tuple[int, str]] = {}
        """Run → attempt and fence of whoever last changed something in the world for it."""
        self.beginnings = 0
        """How many submits and requeues there were."""

    def prepare(self, heard: Heard) -> None:
        """What a call changes before its events."""
        if heard.script == "run/add_dependencies":
            self._depend(heard)
        elif heard.script in (
            "duty/reap_workers",
            "duty/lock",
            "worker/evict",
            "worker/heartbeat",
            "limit/set",
            "limit/block_until",
            "duty/run_timers",
        ):
            getattr(self, f"hear_{heard.method}")(heard)

    def judge(self, heard: Heard) -> None:
        """Whether the answer is right, after its events."""
        if heard.script in WORKERS_WORDS:
            for run, fence, word in heard.words_of_worker():
                self._word(heard, run, fence, word)
            if heard.script == "worker/finish_and_claim" and int(heard["calls"]) > 0:
                self._grant(heard, most=int(heard["calls"]))
        elif heard.script in ("repair/queue", "repair/lane"):
            assert not heard.changed, f"the janitor changed {heard.changed}"
            assert heard.script == "repair/lane" or heard.reply[1] == 0, f"something had to be mended: {heard.reply}"
        elif heard.script == "repair/state_indexes":
            assert heard.reply == 0, "an index of all queues had to be mended"
        else:
            judge = getattr(self, f"_answer_{heard.method}", None) or getattr(self, f"answer_{heard.method}", None)
            if judge is not None:
                judge(heard)

    def answer_turn(self, options: dict[str, Any], word: str, session: str) -> None:
        """A turn was refused; see `talks`."""
        raise NotImplementedError

    def bounds_of(self, life: Life) -> RunSpec:
        """What a run has for its children; see `talks`."""
        raise NotImplementedError

    def refused_task(self, options: dict[str, Any], word: str, other: str) -> None:
        """A task was refused; see `projects`."""
        raise NotImplementedError

    def begin(self, life: Life) -> None:
        """It is submitted or requeued: the last of all so far."""
        self.beginnings += 1
        life.begun = self.beginnings

    def wait_for(self, life: Life, parent: str) -> None:
        """A run is to wait for another; if that has ended, it is told at once."""
        other = self.runs[parent]
        if other.ended:
            life.told(other.state)
        else:
            life.needs.add(parent)

    def _depend(self, heard: Heard) -> None:
        life, parents = self.runs.get(heard["id"]), [str(parent) for (parent,) in heard.rows]
        if life is None or life.state != "blocked" or not life.open:
            assert heard.reply == ("not_found" if life is None else "ok"), f"{heard.reply} of {life and life.line}"
            return
        refused = self._refused_dependency(life, parents)
        assert heard.reply == (refused or "ok"), f"{heard.reply}, not {refused or 'ok'}: {life.line} after {parents}"
        if refused:
            return
        for parent in parents:
            self.wait_for(life, parent)
        if str(heard["seal"]) == "1":
            life.open = False
            life.until = heard.now + int(heard["expires_ms"]) if int(heard["expires_ms"]) else None

    def _refused_dependency(self, life: Life, parents: list[str]) -> str:
        """The word that refuses a dependency: on a run that is not there, or that began later and waits for others."""
        missing = [parent for parent in parents if parent not in self.runs]
        if life.id in parents or missing:
            return f"no_dependency {life.id if life.id in parents else missing[0]}"
        others = [self.runs[parent] for parent in parents]
        newer = [each.id for each in others if each.state == "blocked" and not each.in_line and each.begun > life.begun]
        return f"cycle {newer[0]}" if newer else ""

    # ---- submit, cancel, requeue, wake

    def _answer_run_submit(self, heard: Heard) -> None:
        for (run, lane, spec, text), reply in zip(heard.rows, heard.reply, strict=True):
            word, _, other = reply.partition(" ")
            options, life = options_of(text), self.runs.get(run)
            if "fence" in options and (life is None or run in heard.changed):
                self._judge_child(Life(run, lane, spec, options, "", None, None, open=False), reply)
            if word == "ok":
                assert life is not None, f"{run} was acknowledged, and is not there"
                assert life.spec == spec
            elif word == "id_taken":
                assert life is not None
                assert life.spec != spec
            elif word == "no_dependency":
                assert other in options["after"]
                assert other not in self.runs, f"{run} was refused, though {other} exists"
            elif word == "parent_ended":
                parent = self.runs.get(options["parent"])
                holder = self.keys.get(options.get("dedupe_key", ""), "")
                first = self.runs.get(holder)
                replaced = parent is not None and first is not None and parent.id in (first.id, first.follower)
                assert parent is None or parent.ended or replaced, f"{run} was refused by {other}, which is live"
            elif word in ("parent_fenced", "too_deep", "not_permitted"):
                assert "fence" in options, f"{run} is no attempt's child, and was refused as one: {reply}"
            elif word in ("no_plan", "closed_plan") or ("task" in options and word == "duplicate"):
                self.refused_task(options, word, other)
            elif word in ("no_session", "closed_session"):
                self.answer_turn(options, word, other)
            elif len(heard.rows) == 1:
                assert word == ("duplicate" if options.get("if_live") == "reject" else "exists"), reply
                self._judge_duplicate(heard, Life(run, lane, spec, options, "", None, None, open=False), other)

    def _judge_duplicate(self, heard: Heard, new: Life, other: str) -> None:
        """In place of a new run another was named: one that has its dedupe key, or the same that is to have it next."""
        key, mode = new.options["dedupe_key"], new.options.get("if_live", "return")
        if key not in self.keys:
            taken, until = self.taken.get(key, ("", 0))
            assert other == taken, f"{new.id}: {other} does not have {key}"
            assert until > heard.now, f"{new.id}: {other} has {key} no more"
            return
        holder = self.runs[self.keys[key]]
        named = self.runs.get(holder.follower) if mode == "follow" and holder.attempt else holder
        assert named is not None, f"{new.id} could follow {holder.line}"
        assert (other, named.ended) == (named.id, False), f"{new.id}: {other}, not {named.line}"
        same = mode == "follow" and named.spec == new.spec
        may_not_wait = mode in ("return", "reject") or (mode == "replace" and holder.attempt > 0)
        assert same or may_not_wait, f"{other} is not replaced by {new.id}"

    def _judge_child(self, child: Life, reply: str) -> None:
        """A child that is new, and that an attempt asked for: refused, or not, by the rule for children."""
        parent, found = self.runs.get(child.options["parent"]), list[str]()
        if parent is None or not parent.held or parent.fence != child.options["fence"]:
            expected = "parent_fenced"
        elif self._is_too_deep(parent):
            expected = "too_deep"
        else:
            kin = {life.id for life in self.runs.values() if life.options.get("parent") == parent.id}
            found = fields_beyond(self.bounds_of(parent), child.asked, kin.__contains__)
            expected = "not_permitted" if found else ""
        word = reply.partition(" ")[0]
        refused = word if word in ("parent_fenced", "too_deep", "not_permitted") else ""
        assert refused == expected, f"{child.id} of {parent and parent.line}: {reply}, not {expected!r} for {found}"

    def _is_too_deep(self, life: Life | None) -> bool:
        """Whether so many generations are above a run that it has no children."""
        for _ in range(CHILD_DEPTH_MAX):
            above = life.options.get("parent") if life is not None else None
            if above is None:
                return False
            life = self.runs.get(above)
        return True

    def reach_of(self, heard: Heard, options: dict[str, Any]) -> str:
        """The queues whose results a new run may be given: those of who asks, and of its parent if an attempt does."""
        parent = self.runs.get(options["parent"]) if "fence" in options else None
        return (parent.reach if parent is not None else "") or heard.reach

    def readable_by(self, run: str) -> list[str]:
        """The queues whose results a run may be given; empty for all."""
        life = self.runs.get(run)
        return [*life.reach.split(), life.queue] if life is not None and life.reach else []

    def answer_run_read_results(self, heard: Heard) -> None:
        for (run,), told in zip(heard.rows, heard.reply, strict=True):
            life, queues = self.runs.get(run), heard["queues"].split()
            if life is None:
                assert told == [], f"{told} of a run that is not there"
            elif queues and life.queue not in queues:
                assert told == f"queue_not_readable {life.queue}", f"{life.line} is not for {queues}: {told}"
            else:
                assert dict(zip(told[::2], told[1::2], strict=True))["state"] == life.state, f"{life.line}: {told}"

    def take_key(self, heard: Heard, life: Life) -> None:
        """A new run takes its dedupe key, or its place behind the run that has begun and has the key."""
        options = life.options
        if "dedupe_key" not in options:
            return
        key, mode = options["dedupe_key"], options.get("if_live", "return")
        since, heard.put_off_since = heard.put_off_since, None
        life.put_off_since = (since if since is not None and mode == "debounce" else None) or heard.now
        if "debounce_max_ms" in options and life.due_at is not None:
            life.due_at = min(life.due_at, life.put_off_since + int(options["debounce_max_ms"]))
        life.taken_until = heard.now + int(options["dedupe_ttl_ms"]) if "dedupe_ttl_ms" in options else 0
        other, until = self.taken.pop(key, ("", 0))
        free = until <= heard.now or other in heard.replaced
        assert free, f"{other} has {key} until {until}, and {life.id} took it"
        if key not in self.keys:
            self.keys[key] = life.id
            return
        holder = self.runs[self.keys[key]]
        late = "debounce_max_ms" in options and heard.now >= holder.put_off_since + int(options["debounce_max_ms"])
        assert mode in ("follow", "debounce"), f"{life.id} and {holder.line} both have {key}"
        assert holder.attempt or late, f"{life.id} follows {holder.line}, which it could replace"
        assert holder.follower not in self.runs or self.runs[holder.follower].ended, f"{holder.id} has two followers"
        holder.follower = life.id
        life.needs.add(holder.id)
        life.follows = "" if holder.id in options.get("after", ()) else holder.id

    def hand_on(self, heard: Heard, life: Life) -> None:
        """A run has ended: its key goes to its follower, stays taken, or is free."""
        key = life.options.get("dedupe_key", "")
        if self.keys.get(key) != life.id:
            return
        del self.keys[key]
        follower = self.runs.get(life.follower)
        if follower is not None and not follower.ended:
            self.keys[key] = follower.id
        elif life.taken_until > heard.now:
            self.taken[key] = (life.id, life.taken_until)

    def _answer_run_cancel(self, heard: Heard) -> None:
        self._moved(heard, {"cancelled", "claimed", "running"})

    def _answer_run_wake(self, heard: Heard) -> None:
        self._moved(heard, {"pending", "claimed", "running"})

    def _answer_run_requeue(self, heard: Heard) -> None:
        life = self.runs.get(heard["id"])
        if heard.reply == "notifying_dependents" or heard.reply.startswith("plan_stopping "):
            assert life is not None
            assert life.ended
        elif heard.reply.startswith("duplicate "):
            assert life is not None
            key, other = life.options["dedupe_key"], heard.reply.removeprefix("duplicate ")
            assert other != life.id
            assert other == self.keys.get(key, "") or self.taken[key] > (other, heard.now), (
                f"{life.line}: {heard.reply}"
            )
        elif heard.reply.startswith(("no_session ", "closed_session ")):
            assert life is not None
            self.answer_turn(life.options, *heard.reply.split(" "))
        elif heard.reply.startswith("ok "):
            assert life is not None
            assert life.operation == f"requeue {heard['operation']}"
            assert heard.reply == f"ok {life.state}"
        else:
            self._moved(heard, set())

    def _moved(self, heard: Heard, fine: set[str]) -> None:
        life = self.runs.get(heard["id"])
        if life is None:
            assert heard.reply == "not_found", f"{heard.reply} of a run that is not there"
        else:
            expected = f"ok {life.state}" if life.state in fine else f"wrong_state {life.state}"
            assert heard.reply == expected, f"{heard.script} of {life.line} was answered {heard.reply}"

    # ---- the words of workers

    def _word(self, heard: Heard, run: str, fence: str, reply: str) -> None:
        word, _, state = reply.partition(" ")
        life, verb = self.runs.get(run), heard.verb_of(run)
        said = f"{verb} {fence}"
        if life is None:
            assert word == "not_found", f"{said} of {run}, which is not there, was answered {reply}"
        elif (
            heard.script == "worker/finish_and_claim"
            and fence != life.fence
            and life.fence.endswith(f"-{heard['nonce']}")
        ):
            assert word == "fenced" or said in life.said, (
                f"{said} was accepted of {life.line}, claimed in the same call"
            )
        elif word == "fenced":
            assert fence != life.fence, f"{said} is the holder's word, and was refused: {life.line}"
            # The claims of the same exchange may move its run, as into the line of a limit.
            assert run not in heard.changed or heard.script == "worker/finish_and_claim", (
                f"{said} was refused and changed {life.line}"
            )
        elif run in heard.changed:
            assert word == "ok"
            life.said.add(said)
            self._effect(life, fence)
        elif word == "ok":
            repeated = said in life.said or (fence == life.fence and life.ended)
            old = verb == "report_progress" and fence == life.fence and int(heard["number"]) <= life.number
            assert repeated or old, f"{said} was accepted and changed nothing: {life.line}"
        elif word == "stopping":
            assert fence == life.fence
            assert life.stop_at is not None
        else:
            assert (word, state, fence) == ("wrong_state", life.state, life.fence), f"{said} of {life.line}: {reply}"

    def _effect(self, life: Life, fence: str) -> None:
        """The worker may act in the world on this; never after a later attempt has done so."""
        attempt = int(fence.partition("-")[0])
        last = self.effects.get(life.id, (0, ""))
        assert (attempt, fence) == last or attempt > last[0], f"{life.id}: {fence} acted after {last[1]}"
        self.effects[life.id] = (attempt, fence)

    def _answer_worker_claim(self, heard: Heard) -> None:
        self._grant(heard, most=int(heard["count"]) + int(heard["calls"]))

    def _answer_worker_claim_delivered(self, heard: Heard) -> None:
        self._grant(heard, most=len(heard.rows))

    def _grant(self, heard: Heard, most: int) -> None:
        worker, nonce = heard["worker"], heard["nonce"]
        if heard.refusal:
            self.may_not_claim(heard)
            return
        runs = heard.granted[::4]
        for run, fence in zip(runs, heard.granted[1::4], strict=True):
            life = self.runs[run]
            assert (life.worker, life.fence, life.held) == (worker, fence, True), f"{worker} got {fence}: {life.line}"
        mine = {life.id for life in self.runs.values() if life.held and life.fence.endswith(f"-{nonce}")}
        assert set(runs) == mine, f"{worker} got {mine} by {nonce}, and was told of {runs}"
        call = f"{heard['epoch']} {nonce}"
        assert call in self.granted or len(runs) <= most, f"{worker} has {most} slots, and got {len(runs)} runs"
        if runs:
            self.granted.add(call)
