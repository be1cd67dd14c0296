"""Runs that wait, as the model sees them: their mail, their children, what an attempt was handed, who may wake them."""

from __future__ import annotations

from simulation.answers import Answers
from simulation.heard import Heard
from simulation.life import Life

from agentq.coordinator.bounds import STOP_DEADLINE_MS


class Waits(Answers):
    """The part of the model that knows what runs wait for."""

    def parent_of(self, life: Life) -> Life | None:
        """The parent that has it among its children."""
        parent = self.runs.get(life.options.get("parent", ""))
        return parent if parent is not None and life.id in parent.children else None

    def sleeping_on_it(self) -> list[str]:
        """Who waits though what they wait for is there; nobody may."""
        return [life.line for life in self.runs.values() if life.state == "waiting" and life.met]

    def left_behind(self, life: Life) -> list[str]:
        """Children of an ended run that nobody has cancelled, and somebody should have."""
        return [child for child in life.children if self.runs[child].stop_at is None] if life.ended else []

    def be_born(self, life: Life) -> None:
        if "parent" in life.options:
            parent = self.runs.get(life.options["parent"])
            assert parent is not None, f"{life.line} is a child of nobody"
            assert not parent.ended, f"{life.line} is a child of {parent.line}"
            parent.children.add(life.id)

    def come_home(self, life: Life) -> None:
        """It has ended: its mail is gone, its children are free or to be cancelled, and its parent has heard."""
        parent = self.parent_of(life)
        if parent is not None:
            parent.children.discard(life.id)
            if not parent.ended:
                parent.returns += 1
                parent.returned[parent.returns] = (life.id, life.state)
        life.mail.clear()
        life.returned.clear()
        if life.state == "completed" or life.options.get("children") == "leave":
            life.children.clear()

    def begin_anew(self, life: Life) -> None:
        life.awaits, life.awaits_children, life.awaits_until, life.parked = set(), "", None, False
        life.handed = ("", [], 0)
        life.returns = 0
        parent = self.runs.get(life.options.get("parent", ""))
        if parent is not None and not parent.ended:
            parent.children.add(life.id)
            parent.returned = {at: told for at, told in parent.returned.items() if told[0] != life.id}

    # ---- leaving a worker

    def leave(self, heard: Heard, life: Life, verb: str, target: str) -> None:
        """It leaves its worker; a stop that was ordered ends it whatever the worker says."""
        assert (target == "cancelled") == (life.stop_at is not None), f"{verb} of {life.line}, stop at {life.stop_at}"
        if target in ("completed", "failed", "cancelled"):
            return
        life.fence = life.worker = ""
        life.number, life.wanted, life.unnamed_at = 0, False, None
        if target == "pending":
            life.due_at = None
        life.operation = f"{verb} {heard.fence_of(life.id)}" if verb == heard.script else ""

    def by_its_worker(self, heard: Heard, life: Life) -> None:
        fence = heard.fence_of(life.id)
        assert fence == life.fence, f"{heard.script} was accepted from {fence} while {life.line}"

    # ---- each verb

    def signal(self, heard: Heard, life: Life, target: str) -> None:
        assert heard["operation"] not in life.operations, f"{life.line} heard {heard['operation']} twice"
        awaited = life.state == "waiting" and heard["name"] in life.awaits
        assert target == ("pending" if awaited else life.state), f"{life.line} waits for {life.awaits}: {heard['name']}"
        life.operations.add(heard["operation"])
        life.mail[heard["operation"]] = heard["name"]
        if awaited:
            life.due_at = None

    def wake(self, heard: Heard, life: Life, target: str) -> None:
        if target != "pending":
            assert not life.wanted, f"{life.line} was wanted already"
            life.wanted = True
            return
        assert heard.script == "run/wake" or life.family_met, f"{life.line} was woken, with {life.children}"
        life.due_at = None

    def park(self, heard: Heard, life: Life, target: str) -> None:
        self.by_its_worker(heard, life)
        if life.stop_at is None:
            self._consume(life)
            alarm = int(heard["alarm_at_ms"]) if heard["alarm_at_ms"] != "" else None
            if heard["alarm_ms"] != "":
                alarm = heard.now + int(heard["alarm_ms"])
            life.awaits, life.awaits_children = set(heard["signals"].split()), heard["children"]
            life.awaits_until, life.parked = alarm, True
            wanted = life.wanted or life.met or (alarm is not None and alarm <= heard.now)
            assert target == ("pending" if wanted else "waiting"), (
                f"{life.line}, {life.wanted=}, {alarm=}, {life.mail=}"
            )
            life.due_at = alarm
        self.leave(heard, life, "park", target)

    def _consume(self, life: Life) -> None:
        fence, operations, place = life.handed
        if fence == life.fence:
            for operation in operations:
                del life.mail[operation]
            life.returned = {at: told for at, told in life.returned.items() if at > place}

    def cancel(self, heard: Heard, life: Life, target: str) -> None:
        named = heard.script == "run/cancel" and heard["id"] == life.id
        closed = heard.script == "session/close" and life.options.get("session") == heard["name"]
        parent = None if named or closed else self.parent_of(life)
        replaced = heard.script == "run/submit" and (target, life.attempt) == ("cancelled", 0)
        if parent is not None and parent.ended:
            parent.children.discard(life.id)
        else:
            assert named or closed or replaced, f"{heard.script} cancelled {life.line}"
        if replaced:
            heard.replaced.add(life.id)
            heard.put_off_since = life.put_off_since
        if target != "cancelled":
            assert life.stop_at is None, f"{life.line} was ordered to stop already"
            within_ms = int(heard["stop_ms"]) if named else STOP_DEADLINE_MS
            life.stop_at, life.stop_told = heard.now + within_ms, False

    # ---- answers

    def answer_run_signal(self, heard: Heard) -> None:
        life = self.runs.get(heard["id"])
        word = heard.reply.partition(" ")[0]
        if life is None:
            assert word == "not_found", heard.reply
        elif heard["operation"] in life.operations:
            assert heard.reply == f"ok {life.state}"
        elif word == "too_many_signals":
            assert heard.reply == f"too_many_signals {len(life.mail)}"
        else:
            assert life.ended, f"{heard.reply} of {life.line}"
            assert heard.reply == f"wrong_state {life.state}"

    def answer_attempt_get_wait_result(self, heard: Heard) -> None:
        life, fence = self.runs.get(heard["id"]), heard["fence"]
        if life is None:
            assert heard.reply == "not_found"
        elif fence != life.fence:
            assert heard.reply == "fenced"
        elif not life.held:
            assert heard.reply == f"wrong_state {life.state}"
        elif not life.parked:
            assert heard.reply == "unparked"
        else:
            self._handed(heard, life)

    def _handed(self, heard: Heard, life: Life) -> None:
        """All that it waited for and nothing else, each child in its turn."""
        _, following, why, _, number, *rest = heard.reply
        told, children = rest[: 5 * int(number)], rest[5 * int(number) :]
        if heard["after"] == "":
            mail = [operation for operation, name in life.mail.items() if name in life.awaits]
            place = max(life.returned, default=0) if life.awaits_children else 0
            life.handed = (life.fence, mail, place)
            assert [data.strip('"') for data in told[2::5]] == mail, f"{life.line} was handed {told} of {life.mail}"
            family, late = life.family_met, life.awaits_until is not None and life.awaits_until <= heard.now
            assert why == ("signal" if mail else "children" if family else "time" if late else "wake")
        after = int(heard["after"] or 0)
        due = [told for at, told in life.returned.items() if after < at <= life.handed[2]]
        found = list(zip(children[::3], children[1::3], strict=True))
        assert found == due[: len(found)], f"{life.line} was handed {found} of {due}"
        assert (following == "") == (len(found) == len(due))
