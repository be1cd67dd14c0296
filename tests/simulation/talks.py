"""Sessions and conversations, as the model sees them: whose turn it is, where the next attempt goes, what was spent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from simulation.heard import Heard
from simulation.life import Life
from simulation.waits import Waits

from agentq.coordinator.model.spec import RunSpec

SUMS = 6


@dataclass(slots=True)
class Talk:
    """A conversation: of a session, or of one run."""

    state: str = "open"
    operation: str = ""
    agent_session: str = ""
    stays: str = ""
    carried_of: str = ""
    carried: str = ""
    cwd: str = ""
    sums: list[int] = field(default_factory=lambda: [0] * SUMS)
    line: list[str] = field(default_factory=list)
    """The turns that have not ended, the first first."""


class Talks(Waits):
    """The part of the model that knows sessions, and what agents tell."""

    def __init__(self, *, gap_ms: int, lease_ms: int, grace_ms: int, forget_ms: int) -> None:
        super().__init__(gap_ms=gap_ms, lease_ms=lease_ms, grace_ms=grace_ms, forget_ms=forget_ms)
        self.sessions: dict[str, Talk] = {}
        self.own: dict[str, Talk] = {}
        """Of runs without a session; and what each run has spent."""
        self.before: dict[str, list[int]] = {}
        """What a run had spent when it began again."""
        self.told: dict[str, list[int]] = {}
        """What an attempt has told, by its fence."""

    # ---- turns

    def line_of(self, life: Life) -> list[str]:
        """The line that a turn stands in; of other runs, nothing."""
        return self.sessions[life.options["session"]].line if "agent" in life.options else []

    def is_behind(self, life: Life) -> bool:
        """Whether there are turns before it."""
        line = self.line_of(life)
        return bool(line) and line[0] != life.id

    def kept_waiting(self) -> list[str]:
        """Those whose turn it is, that wait for nothing else, and that nobody has called."""
        lives = [self.runs[talk.line[0]] for talk in self.sessions.values() if talk.line]
        return [
            f"{life.line}: it is its turn"
            for life in lives
            if life.state == "blocked" and not (life.needs or life.open or life.in_line or life.doomed)
        ]

    def step_back(self, life: Life) -> None:
        """It has ended."""
        if life.id in self.line_of(life):
            self.line_of(life).remove(life.id)

    def answer_turn(self, options: dict[str, Any], word: str, session: str) -> None:
        """A turn was refused."""
        assert session == options["session"]
        talk = self.sessions.get(session)
        if word == "no_session":
            assert talk is None, f"{session} is there"
        else:
            assert talk is not None
            assert talk.state == "closed", f"{session} is open"

    def bounds_of(self, life: Life) -> RunSpec:
        """What a run has for its children: what it was asked for, in the folder of its conversation if in no other."""
        own = life.asked
        folder = self.sessions[life.options["session"]].cwd if "agent" in life.options and own.workspace is None else ""
        return own.model_copy(update={"cwd": own.cwd or folder}) if folder else own

    # ---- the next attempt

    def conversation_of(self, life: Life) -> Talk:
        return (
            self.sessions[life.options["session"]] if "agent" in life.options else self.own.setdefault(life.id, Talk())
        )

    def goes_where_it_must(self, heard: Heard, life: Life) -> None:
        """The lane that it was claimed from is one of the host that has its conversation; or of any."""
        place = heard.granted.index(life.id)
        host, lane = self.conversation_of(life).stays, heard.granted[place + 2]
        assert ("host=" in lane) == bool(host), f"{life.line} is in {lane}, and its conversation stays on {host!r}"
        assert not host or f"host={host}" in lane, f"{life.line} is in {lane}, and its conversation is on {host}"

    def speak_anew(self, life: Life) -> None:
        """It was requeued: a conversation of its own is forgotten, and it stands at the end of a line."""
        own = self.own.setdefault(life.id, Talk())
        self.before[life.id] = list(own.sums)
        own.agent_session = own.stays = own.carried_of = own.carried = ""
        if "agent" in life.options:
            self.line_of(life).append(life.id)

    # ---- what clients say

    def answer_session_create(self, heard: Heard) -> None:
        talk = self.sessions.get(heard["name"])
        if heard.reply == "ok":
            if talk is None:
                talk = self.sessions[heard["name"]] = Talk(operation=heard["operation"], cwd=heard["cwd"])
                self._fork(talk, heard["fork"])
            assert talk.operation == heard["operation"], f"{heard['name']} was begun twice"
        elif heard.reply.startswith("no_session"):
            assert heard["fork"] not in self.sessions
        else:
            assert talk is not None
            assert heard.reply == f"name_taken {talk.state}"

    def _fork(self, talk: Talk, source: str) -> None:
        if source:
            of = self.sessions[source]
            talk.cwd = talk.cwd or of.cwd
            talk.agent_session, talk.stays = of.agent_session, of.stays
            talk.carried_of, talk.carried = of.carried_of, of.carried

    def answer_session_close(self, heard: Heard) -> None:
        talk = self.sessions.get(heard["name"])
        if talk is None:
            assert heard.reply == "not_found"
            return
        talk.state = "closed"
        live = [self.runs[run] for run in talk.line]
        stopping = sum(life.stop_at is not None for life in live)
        # One that is to stop already may not have been looked at, and counts with those to be looked at yet.
        left = {"ok 0"} if heard["cancel"] == "" else {f"ok {len(live) - stopping}", f"ok {len(live)}"}
        assert heard.reply in left, f"{heard.reply}, and {[life.line for life in live]} are left"
        assert heard.reply != "ok 0" or heard["cancel"] == "" or stopping == len(live)

    # ---- what attempts say

    def _speaker(self, heard: Heard) -> Life | None:
        """The run that an attempt speaks of, if it may."""
        life = self.runs.get(heard["id"])
        if life is None:
            assert heard.reply == "not_found"
        elif heard["fence"] != life.fence:
            assert heard.reply == "fenced", f"{heard.script} of {heard['fence']} was accepted: {life.line}"
        elif not life.held:
            assert heard.reply == f"wrong_state {life.state}"
        else:
            return life
        return None

    def answer_conversation_get(self, heard: Heard) -> None:
        life = self._speaker(heard)
        if life is not None:
            talk = self.conversation_of(life)
            carried = "1" if talk.agent_session and talk.agent_session == talk.carried_of else ""
            assert (heard.reply[1], heard.reply[6]) == (talk.agent_session, carried), f"{life.line} began from {talk}"

    def answer_conversation_bind(self, heard: Heard) -> None:
        life = self._speaker(heard)
        if life is None:
            return
        assert heard.reply == "ok"
        talk = self.conversation_of(life)
        talk.agent_session = heard["agent_session"]
        talk.stays = heard["host"] if talk.agent_session and heard["movable"] == "" else ""
        if not talk.agent_session or heard["movable"] == "":
            talk.carried_of = talk.carried = ""

    def answer_conversation_save_transcript(self, heard: Heard) -> None:
        life = self._speaker(heard)
        if life is None:
            return
        talk = self.conversation_of(life)
        assert heard.reply == ("ok" if talk.agent_session else "no_conversation")
        if talk.agent_session:
            talk.carried_of, talk.carried, talk.stays = talk.agent_session, heard["transcript"].decode(), ""

    def answer_conversation_get_transcript(self, heard: Heard) -> None:
        life = self._speaker(heard)
        if life is not None:
            talk = self.conversation_of(life)
            same = talk.agent_session and talk.agent_session == talk.carried_of
            assert heard.reply == ["ok", talk.carried if same else ""]

    def answer_conversation_record_spending(self, heard: Heard) -> None:
        life = self._speaker(heard)
        if life is None:
            return
        told = self.told.setdefault(f"{life.id} {life.fence}", [0] * SUMS)
        now = [0, 0, *(int(heard[name]) for name in ("input", "cached", "output", "turns"))]
        now = [max(number, other) for number, other in zip(now, told, strict=True)]
        spent = any(int(heard[name]) for name in ("input", "output", "turns"))
        now[0] = told[0] if heard["cost"] == "" else max(int(heard["cost"]), told[0])
        now[1] = int(heard["cost"] == "" and not told[0] and (spent or told[1] > 0 or sum(told[2:]) > 0))
        own = self.own.setdefault(life.id, Talk())
        talks = [own, self.sessions[life.options["session"]]] if "agent" in life.options else [own]
        for talk in talks:
            talk.sums = [sum(each) for each in zip(talk.sums, now, [-number for number in told], strict=True)]
        told[:] = now
        before = self.before.get(life.id, [0] * SUMS)
        of_run = [number - other for number, other in zip(own.sums, before, strict=True)]
        of_session = _text(talks[1].sums) if len(talks) > 1 else ""
        assert heard.reply == ["ok", _text(of_run), of_session], f"{heard.reply}, not {of_run}, {of_session}"


def _text(sums: Sequence[int]) -> str:
    return " ".join(map(str, sums))
