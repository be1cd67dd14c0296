"""What a runner is told when it polls: one thing at a time, the most urgent first.

1. That it was deregistered; or that it is drained, once it has nothing left.
2. Runs, or sessions, to stop: those that it holds and that are to be cancelled, and those that it was given and holds
   no longer, because they were lost to it: whatever still runs there of them is to end before it gets anything new.
3. Scripts to fetch or to remove.
4. A run that it was given and has not begun. Runners go on polling only when they have said that a run began: so the
   answer that brought it was lost, and it is given once more.
5. A run that it may take, if it has room for one.

All of that is read from what the store knows, in each poll anew: nothing has to be remembered between two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pydantic import JsonValue
from pydantic_core import from_json

from agentq.coordinator.bounds import ERROR_CHARACTERS
from agentq.coordinator.errors import AgentqError, NotFound, Refused, TryLater, Unreachable
from agentq.coordinator.model.ids import id_created_ms
from agentq.coordinator.model.lifecycle import OutcomeClass, State
from agentq.coordinator.model.spec import Outcome, parse_spec
from agentq.coordinator.runs.queries import RunQueries
from agentq.coordinator.runs.run_record import RunRecord
from agentq.coordinator.runs.verbs import Claim
from agentq.dialects.agent_orchestrator.blueprints.placeholders import collect_values
from agentq.dialects.agent_orchestrator.blueprints.store import BlueprintStore
from agentq.dialects.agent_orchestrator.dialect_table import STOP_RUNS, Dialect
from agentq.dialects.agent_orchestrator.run_translation import (
    BLOCKED,
    RESUME_SESSION,
    DialectNotes,
    derive_session_id,
    get_session_id,
    translate_run,
)
from agentq.dialects.agent_orchestrator.runners.registry import ACTIVE_MS, RunnerNotRegistered, RunnerRegistry
from agentq.dialects.agent_orchestrator.runners.run_reports import RAN_TOO_LONG
from agentq.dialects.agent_orchestrator.runners.snapshot import GIVEN_PREFIX, GivenRun, HeldRun, RunnerSnapshot
from agentq.dialects.agent_orchestrator.sessions.child_runs import ChildRuns
from agentq.dialects.agent_orchestrator.sessions.store import RUN_FACT, DialectSessionStore
from agentq.server.http.problems import Denied

STOP_REPEAT_MS = 10_000
"""A stop that was told and not confirmed is told again after so long."""
STOP_REPEATS_MAX = 5
"""How often a runner is told to stop what it holds no longer; then it is taken to have nothing of it."""
STOP_PAUSE_MS = 15_000
"""How long a runner gets nothing new after it was told to stop what it holds no longer, unless it says that it did."""

PollBody = dict[str, Any]


@dataclass(frozen=True, slots=True)
class PollAnswer:
    """An answer to a poll. What was claimed for it is handed back if nobody is there to take it."""

    body: PollBody
    claim: Claim | None = None


@dataclass(frozen=True, slots=True)
class EmptyPollAnswer:
    """There is nothing to tell, for now; something may be due after a while even if nothing happens."""

    again_ms: int | None = None


PollResult = PollAnswer | EmptyPollAnswer | AgentqError


class PollRequest(NamedTuple):
    """A poll: whose, how long it is going to wait, and whether the caller may speak for a runner of some token."""

    runner: str
    poll_ms: int
    may_touch: Callable[[str], bool]


class PollDecider:
    """Decides what each poll is answered."""

    def __init__(
        self, roster: RunnerRegistry, conversing: DialectSessionStore, shelf: BlueprintStore, children: ChildRuns
    ) -> None:
        self.roster = roster
        self.children = children
        self.conversing = conversing
        self.shelf = shelf
        self.queue = roster.queue
        self.records = RunQueries(roster.store)

    def next(self, look: RunnerSnapshot, poll_ms: int = 0) -> PollAnswer | EmptyPollAnswer:
        """What a runner is to be told now; `poll_ms` is how long it is going to wait if that is nothing."""
        if look.leaving:
            self.roster.let_go(look)
            return PollAnswer({"deregistered": True})
        if not look.registered or self.roster.is_worn(look):
            self.roster.beat(look)
            look = self.roster.look(look.runner)
        look, left_ms = self._expired(look)
        found = self._found(look)
        if poll_ms and isinstance(found, EmptyPollAnswer):
            self.roster.note(look.runner, **self.roster.polls_until(look.now_ms + poll_ms))
        if left_ms is not None and isinstance(found, EmptyPollAnswer):
            found = EmptyPollAnswer(left_ms if found.again_ms is None else min(left_ms, found.again_ms))
        return found

    def next_of_all(self, asks: Sequence[PollRequest]) -> list[PollResult]:
        """The same for several polls, together, of each of which only what it is told or why it is refused."""
        looks, answers = self.roster.look_all([ask.runner for ask in asks]), list[PollResult]()
        plain: dict[int, RunnerSnapshot] = {}
        for place, ask in enumerate(asks):
            look = looks[place]
            if look is None:
                answers.append(RunnerNotRegistered("Runner not registered"))
            elif not ask.may_touch(look.fields.get("token", "")):
                answers.append(Denied("This token is another runner's."))
            elif self._is_plain(look) and all(each.runner != look.runner for each in plain.values()):
                plain[place] = look
                answers.append(EmptyPollAnswer())
            else:
                self.roster.who(look)
                answers.append(self._guarded(look, ask.poll_ms))
        for place, answer in zip(plain, self._claimed_by_all(list(plain.values())), strict=True):
            answers[place] = answer
        quiet = [
            (look.runner, self.roster.polls_until(look.now_ms + asks[place].poll_ms))
            for place, look in plain.items()
            if isinstance(answers[place], EmptyPollAnswer) and asks[place].poll_ms
        ]
        self.roster.note_all(quiet)
        return answers

    def _is_plain(self, look: RunnerSnapshot) -> bool:
        """Whether there is nothing to tell a runner but a run."""
        knows = not look.dialect.fetches_scripts or look.fields.get("scripts", "0") == look.shelf
        free = knows and look.registered and not (look.leaving or look.draining or look.holds or look.given)
        return free and not self.roster.is_worn(look) and len(look.epochs) == 1

    def _guarded(self, look: RunnerSnapshot, poll_ms: int) -> PollResult:
        try:
            return self.next(look, poll_ms)
        except AgentqError as refused:
            return refused

    def _claimed_by_all(self, looks: Sequence[RunnerSnapshot]) -> list[PollResult]:
        answers: list[PollResult] = []
        facts: list[tuple[str, dict[str, str]]] = []
        claimed = self.roster.claim_all(looks)
        for place, look in enumerate(looks):
            claims = claimed[place]
            if isinstance(claims, AgentqError) or not claims:
                answers.append(claims if isinstance(claims, AgentqError) else EmptyPollAnswer())
                continue
            run = build_claimed_run(claims[0], look)
            if DialectNotes.of(run.spec).hook is not None or run.spec.session is None:
                told = self._handed(look, claims[0])
                answers.append(EmptyPollAnswer(0) if told is None else PollAnswer(told.body, claims[0]))
                continue
            body, fact = self._given(look, claims[0], run, None)
            facts.append((look.runner, fact))
            answers.append(PollAnswer({"run": body}, claims[0]))
        self.roster.note_all(facts)
        return answers

    def _found(self, look: RunnerSnapshot) -> PollAnswer | EmptyPollAnswer:
        doomed = self._doomed(look)
        told = self._stops(look, doomed) or self._scripts(look)
        if told is not None:
            return told
        again = next((hold for hold in look.holds if hold.state == State.CLAIMED and not hold.stopping), None)
        told = self._handed(look, again.claim) if again is not None else None
        if told is not None:
            return told
        if look.draining:
            return EmptyPollAnswer() if look.holds or doomed else PollAnswer({"deregistered": True})
        wait_ms = max((each.told_at_ms + STOP_PAUSE_MS - look.now_ms for each in doomed), default=0)
        return EmptyPollAnswer(wait_ms) if wait_ms > 0 else self._claimed(look)

    # ---- stopping

    def _expired(self, look: RunnerSnapshot) -> tuple[RunnerSnapshot, int | None]:
        """End what runs longer than it may; the runner as it is then, and when the next of its runs will do that."""
        timeouts = self.roster.timeouts_of(look.runner)
        timed = [hold for hold in look.holds if hold.state == State.RUNNING and hold.claim.id in timeouts]
        left = [self._left_ms(hold, timeouts[hold.claim.id], look.now_ms) for hold in timed if not hold.stopping]
        if any(left_ms <= 0 for left_ms in left):
            look = self.roster.look(look.runner)
        return look, min((left_ms for left_ms in left if left_ms > 0), default=None)

    def _left_ms(self, hold: HeldRun, timeout_ms: int, now_ms: int) -> int:
        """How long a run may go on; one that may not is ended."""
        left_ms = hold.claimed_at_ms + timeout_ms - now_ms
        if left_ms > 0:
            return left_ms
        left_ms += (self.records.get(hold.claim.id).started_at_ms or now_ms) - hold.claimed_at_ms
        if left_ms <= 0:
            self._quietly(hold.claim, RAN_TOO_LONG)
        return left_ms

    def _doomed(self, look: RunnerSnapshot) -> list[GivenRun]:
        """What the runner was given and holds no longer; what was to be stopped before it began ends here."""
        held = []
        for hold in look.holds:
            if hold.stopping and hold.state == State.CLAIMED:
                self._quietly(hold.claim, Outcome(class_=OutcomeClass.CANCELLED, error="stopped before it began"))
            else:
                held.append(hold)
        runs, sessions = {hold.claim.id for hold in held}, {hold.session for hold in held}
        lost = [each for each in look.given if each.run not in runs]
        # A later turn of the same conversation has taken its place there; a stop would hit that one.
        by_session = STOP_RUNS not in look.dialect.stops
        over = [each for each in lost if each.times >= STOP_REPEATS_MAX or (by_session and each.session in sessions)]
        if over:
            self.roster.note(look.runner, **{f"{GIVEN_PREFIX}{each.run}": "" for each in over})
        return [each for each in lost if each not in over]

    def _quietly(self, claim: Claim, outcome: Outcome) -> None:
        try:
            self.queue.fail(claim, outcome)
        except (Refused, NotFound):
            return  # it has gone on without this attempt, which is just as well

    def _stops(self, look: RunnerSnapshot, doomed: list[GivenRun]) -> PollAnswer | None:
        given = {each.run: each for each in look.given}
        wanted = list(doomed)
        for hold in look.holds:
            if hold.stopping and hold.state != State.CLAIMED:
                known = given.get(hold.claim.id)
                session = hold.session or derive_session_id(hold.claim.id)
                wanted.append(known or GivenRun(hold.claim.id, session, 0, 0))
        due = [each for each in wanted if each.told_at_ms == 0 or look.now_ms - each.told_at_ms >= STOP_REPEAT_MS]
        if not due:
            return None
        facts = {f"{GIVEN_PREFIX}{each.run}": f"{each.session} {look.now_ms} {each.times + 1}" for each in due}
        self.roster.note(look.runner, **facts)
        return PollAnswer(_build_stop_body(look.dialect, due))

    def _scripts(self, look: RunnerSnapshot) -> PollAnswer | None:
        """What has changed of the scripts since the runner was last told; only some dialects know of any."""
        if not look.dialect.fetches_scripts:
            return None
        if look.fields.get("scripts", "0") == look.shelf:
            return None
        stamps = {each["name"]: each["modified_at"] for each in self.shelf.all("scripts")}
        before = dict(_parse_script_stamp(each) for each in look.fields.get("script_names", "").split())
        kept = " ".join(f"{name}|{stamp}" for name, stamp in stamps.items())
        self.roster.note(look.runner, scripts=look.shelf, script_names=kept)
        changed = [name for name, stamp in stamps.items() if before.get(name) != stamp]
        removed = [name for name in before if name not in stamps]
        return PollAnswer({"sync_scripts": changed, "remove_scripts": removed}) if changed or removed else None

    # ---- giving

    def _claimed(self, look: RunnerSnapshot) -> PollAnswer | EmptyPollAnswer:
        room = look.registration.concurrency - len(look.holds)
        if room <= 0:
            room += self.children.waited_for(hold.session for hold in look.holds)
        while room > 0:
            claims = self.roster.lease(look).claim(1)
            if not claims:
                return EmptyPollAnswer()
            told = self._handed(look, claims[0])
            if told is not None:
                return PollAnswer(told.body, claims[0])
        return EmptyPollAnswer()

    def _handed(self, look: RunnerSnapshot, claim: Claim) -> PollAnswer | None:
        """A run as its runner is to get it; None if its start hook forbids it."""
        run = self.records.get(claim.id)
        notes, parameters = DialectNotes.of(run.spec), None
        # A hook is what the run has waited for; what else its submitter may have written down is none.
        if notes.hook is not None and notes.hook in run.spec.after:
            blocked, parameters = self._hooked(notes.hook)
            if blocked is not None:
                self._quietly(claim, Outcome(class_=OutcomeClass.REJECTED, error=blocked[:ERROR_CHARACTERS]))
                return None
        body, facts = self._given(look, claim, run, parameters)
        self.roster.note(look.runner, **facts)
        if run.spec.session is None:
            self.conversing.note(get_session_id(run), **{RUN_FACT: run.id})
        return PollAnswer({"run": body})

    def _given(
        self, look: RunnerSnapshot, claim: Claim, run: RunRecord, parameters: dict[str, JsonValue] | None
    ) -> tuple[PollBody, dict[str, str]]:
        """A run as its runner gets it, and what is to be noted of the runner."""
        session, active = get_session_id(run), self.roster.polls_until(look.now_ms + ACTIVE_MS)
        self.roster.remember(look.runner, claim, session, run.spec.timeout_ms)
        facts = {**active, f"{GIVEN_PREFIX}{run.id}": f"{session} 0 0"}
        return self._body(run, DialectNotes.of(run.spec), session, parameters), facts

    def _body(
        self, run: RunRecord, notes: DialectNotes, session: str, parameters: dict[str, JsonValue] | None
    ) -> PollBody:
        body = translate_run(run)
        if parameters is not None:
            body |= {"parameters": parameters, "prompt": parameters.get("prompt", body["prompt"])}
        if notes.type == RESUME_SESSION:
            # Only a session that has begun can have been given another id.
            body["session_id"] = self.conversing.about(session).get("given_id") or session
        body["scope"] = notes.scope or None
        body["resolved_agent_blueprint"] = self._blueprint(notes, body, session)
        return body

    def _blueprint(self, notes: DialectNotes, body: PollBody, session: str) -> PollBody | None:
        if notes.agent is None:
            return None
        return self.shelf.filled(notes.agent, collect_values(body["parameters"], notes.scope, session, body["run_id"]))

    def _hooked(self, hook: str) -> tuple[str | None, dict[str, JsonValue] | None]:
        """What a start hook has answered: why the run must not begin, and the parameters that it is to begin with."""
        try:
            run = self.records.get(hook)
        except NotFound:
            return None, None
        said: JsonValue = run.outcome.result if run.outcome is not None and run.state is State.COMPLETED else None
        answer = parse_hook_answer(said)
        if answer.get("action") == "block":
            return f"{BLOCKED}{answer.get('block_reason') or 'No reason provided'}", None
        parameters = answer.get("parameters")
        return None, parameters if isinstance(parameters, dict) else None

    def hand_back(self, runner: str, claim: Claim) -> None:
        """Nobody was there to take a run: it goes to somebody else, at no cost."""
        self.roster.forget(runner, claim.id)
        self.roster.note(runner, **{f"{GIVEN_PREFIX}{claim.id}": ""})
        try:
            self.queue.release(claim, "its runner had gone before it was delivered")
        except (Unreachable, TryLater):
            raise
        except AgentqError:
            return  # it has gone on without this attempt already


def _parse_script_stamp(text: str) -> tuple[str, str]:
    """A script that a runner was told to fetch, and how old it was then."""
    name, _, stamp = text.partition("|")
    return name, stamp


def build_claimed_run(claim: Claim, look: RunnerSnapshot) -> RunRecord:
    """A run that was claimed this moment, as far as a runner is told of it."""
    return RunRecord.model_construct(
        id=claim.id,
        spec=parse_spec(claim.spec, claim.lane),
        state=State.CLAIMED,
        worker=look.runner,
        fence=claim.fence,
        submitted_at_ms=id_created_ms(claim.id),
        claimed_at_ms=look.now_ms,
        started_at_ms=None,
        finished_at_ms=None,
        stop_at_ms=None,
        outcome=None,
        attempts=[],
    )


def parse_hook_answer(said: JsonValue) -> dict[str, JsonValue]:
    """An answer as an object, if it is one, or JSON that is one; nothing if it cannot be understood."""
    if isinstance(said, str):
        try:
            said = from_json(said)
        except ValueError:  # also of what is nested too deep
            return {}
    return said if isinstance(said, dict) else {}


def _build_stop_body(dialect: Dialect, due: list[GivenRun]) -> PollBody:
    """What is to stop, in each spelling of the dialect; which of them a runner reads is its own affair."""
    named = {"run": [each.run for each in due], "session": list(dict.fromkeys(each.session for each in due))}
    return {stop.key: named[stop.names] for stop in dialect.stops}
