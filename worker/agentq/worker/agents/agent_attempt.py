"""One try at an agent's run. Beside what every attempt does (`worker/attempt.py`), it

1. sets out, with an account whose gate is open, in the conversation where an earlier attempt or turn left it;
2. reads along what the agent does, tells it, and counts what it spends;
3. ends it when it hangs, has spent what it may, wants to sleep, or has said its last word and stays;
4. judges by what the agent itself told, keeps its conversation, and does what the table of verdicts says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from pydantic import JsonValue, ValidationError

from agentq.coordinator import bounds
from agentq.coordinator.clock import monotonic_ms, wall_ms
from agentq.coordinator.errors import AgentqError
from agentq.coordinator.model.agent_events import AgentEvent, SpendingEvent
from agentq.coordinator.model.agent_options import AgentTurnOptions
from agentq.coordinator.model.lifecycle import OutcomeClass
from agentq.coordinator.model.spec import AgentOutcome, AgentSpending, Outcome, RunSpec
from agentq.coordinator.runs.logs import LogChunk
from agentq.coordinator.runs.verbs import Claim
from agentq.coordinator.runs.wait import Resumption, RunWait
from agentq.worker.agents.accounts.billing import has_own_billing, order_accounts
from agentq.worker.agents.agent_context import AgentContext
from agentq.worker.agents.conversation_upload import ConversationUpload
from agentq.worker.agents.output_reader import AgentOutputReader
from agentq.worker.agents.preparation import AccountsAtLimit, AgentPreparation, PreparedAgent
from agentq.worker.agents.prompts import NO_CHANGES, WAKE_PROMPT
from agentq.worker.agents.verdict_rules import AgentEnd, EndReason, judge_end
from agentq.worker.agents.verdicts import Verdict, VerdictKind
from agentq.worker.attempt import Answer, AttemptContext, RunAttempt
from agentq.worker.attempt_stop import AttemptStop, NotStarted
from agentq.worker.output.output_pipes import OutputPipes
from agentq.worker.output.sanitizer import sanitize_text
from agentq.worker.process.run_process import ProcessExit, ProcessLaunch, RunProcess
from agentq.worker.reporting.report_sender import AttemptReport
from agentq.worker.run_api.result_channel import ProgramResult, ResultChannel

GATE_MS = 600_000
"""How long an account stays shut that nobody is logged in with, or that does not say when its limit ends."""
ANSWER_CHARACTERS = bounds.RESULT_BYTES // 8
"""What of an agent's last word is the result of its run."""
WAKE_PROMPT_CHARACTERS = bounds.PARKED_STATE_BYTES // 8
"""What is kept of what an agent wants to be asked when it is woken."""
LATE_REASONS: dict[OutcomeClass, EndReason] = {
    OutcomeClass.STARTUP: "startup",
    OutcomeClass.LINGER: "linger",
    OutcomeClass.SILENCE: "silence",
    OutcomeClass.TIMEOUT: "timeout",
    OutcomeClass.LIMIT: "refused",
}


class AgentAttempt(RunAttempt):
    """See above."""

    def __init__(self, claim: Claim, spec: RunSpec, context: AttemptContext, agents: AgentContext) -> None:
        super().__init__(claim, spec, context)
        self.turn = spec.turn or AgentTurnOptions()
        self._agents = agents
        self._out: PreparedAgent | None = None
        self._telling: AgentOutputReader
        self._keeping: ConversationUpload
        self._overdrawn: Verdict | None = None
        self._verdict: Verdict | None = None
        self._due_at_ms: int | None = None
        self._began_ms = monotonic_ms()

    async def run(self) -> None:
        try:
            await super().run()
        finally:
            self.context.agent_socket.leave(self.claim)

    # ---- what its workspace asks

    @property
    def continues_earlier(self) -> bool:
        """In the conversation in which an earlier attempt was."""
        later = self.claim.fence.partition("-")[0] != "1"
        return super().continues_earlier or (later and self._agents.profiles.get(self.spec.agent or "").resumes)

    def delivers(self, outcome: Outcome) -> bool:
        sleeps = self._verdict is not None and self._verdict.kind is VerdictKind.SLEEPS
        return not sleeps and super().delivers(outcome)

    def expects_changes(self, outcome: Outcome) -> bool:
        return self.turn.expects == "changes" and not _declares_no_changes(outcome.result)

    @property
    def continues_later(self) -> bool:
        put_off = self._verdict is not None and self._verdict.consequence.run in ("park", "back off", "defer")
        return put_off or super().continues_later

    # ---- setting out

    async def _build_launch(self, channel: ResultChannel, resumption: Resumption | None) -> ProcessLaunch:
        deciding = AgentPreparation(self.claim, self.spec, self._agents, self.context.environment, self.ask_server)
        deciding.instead = self.delivery.asked if self.delivery is not None else None
        try:
            out = await deciding.decide(resumption, self._log_file().with_name("before"))
        except AccountsAtLimit as shut:
            self._verdict, self._due_at_ms = Verdict(VerdictKind.LIMITED, str(shut), shut.until_ms), shut.until_ms
            if self.turn.account is None:
                # Another worker may have an account that is open; this one takes no such runs for now.
                self.stop(AttemptStop.RELEASED, str(shut))
            raise NotStarted(self._told(self._verdict, {})) from shut
        self.check_not_stopped()
        refusal = out.purse.is_empty() or (None if out.counts_money else out.purse.uncounted())
        if refusal is not None:
            raise NotStarted(self._told(refusal, {}))
        self._out = out
        log = partial(self.context.log_upload.log, self.claim)
        self._telling = AgentOutputReader(out.reader, log, self._heard)
        self._keeping = ConversationUpload(
            self.claim,
            out,
            self._agents,
            self._asked,
            lambda sentence: log([LogChunk("note", f"{sanitize_text(sentence)}\n")]),
        )
        await self._keeping.begin()
        self._began_ms = monotonic_ms()
        launch = await out.launch(self.claim, self.spec, self.context.environment, channel)
        placed = self.spec.model_copy(update={"cwd": str(out.cwd)})
        entry = await self.context.agent_socket.admit(self.claim, placed, self._on_progress)
        return replace(launch, env={**launch.env, **entry})

    async def _asked(self, ask: Callable[[], Answer]) -> Answer | None:
        """Ask the server until it answers; once only, if the attempt is to end. None if it did not answer."""
        if self._stop is None:
            return await self.ask_until_stopped(ask)
        if self._stop is not AttemptStop.FENCED:
            with suppress(AgentqError):
                return await asyncio.to_thread(ask)
        return None

    def _open_output(self, process: RunProcess) -> OutputPipes:
        log = partial(self.context.log_upload.log, self.claim)
        output = OutputPipes(process.stdout, process.stderr, self._log_file(), log, self._telling.tap, self._secrets)
        for note in self._set_out.notes:
            output.note(note)
        return output

    @property
    def _set_out(self) -> PreparedAgent:
        assert self._out is not None
        return self._out

    # ---- watching

    def _heard(self, doings: list[AgentEvent]) -> None:
        """The agent has done something."""
        facts = self._set_out.reader.facts
        self._keeping.heard(facts)
        if any(isinstance(doing, SpendingEvent) for doing in doings):
            spent = _to_spending(facts.spent)
            self._count(spent)
            if self._overdrawn is None and not facts.concluded:
                self._overdrawn = self._set_out.purse.overdrawn(spent)
        self._limits_changed.set()

    def _count(self, spent: AgentSpending) -> None:
        out = self._set_out
        totals = out.reader.facts.totals if out.profile.totals == "conversation" else {}
        self.context.log_upload.spent(self.claim, spent, totals)

    def _limits_left(self, started_ms: int, output: OutputPipes) -> dict[OutcomeClass, int]:
        facts, profile = self._set_out.reader.facts, self._set_out.profile
        left, now = super()._limits_left(started_ms, output), monotonic_ms()
        heard_ms = max(output.last_byte_ms or 0, started_ms)
        if self.spec.silence_timeout_ms is None:
            left[OutcomeClass.SILENCE] = heard_ms + profile.silence_timeout_ms - now
        if not facts.told:
            startup_ms = self.turn.startup_timeout_ms or profile.startup_timeout_ms
            left[OutcomeClass.STARTUP] = started_ms + startup_ms - now
        if facts.concluded:
            linger_ms = self.turn.linger_timeout_ms or profile.linger_timeout_ms
            left[OutcomeClass.LINGER] = 0 if facts.sleep is not None else heard_ms + linger_ms - now
        if facts.refused and not facts.concluded:
            left[OutcomeClass.LIMIT] = 0
        if self._overdrawn is not None:
            left[OutcomeClass.BUDGET] = 0
        return left

    # ---- the end

    async def _build_outcome(
        self, late: OutcomeClass | None, exit_: ProcessExit, output: OutputPipes, channel: ResultChannel
    ) -> Outcome:
        out = self._set_out
        self._telling.ended()
        self._count(_to_spending(out.reader.facts.spent))
        result, about = channel.result(), self._outcome_fields(exit_, output)
        if self._stop is AttemptStop.RELEASED and self._interrupted and out.reader.facts.concluded:
            late = OutcomeClass.LINGER
        if self._stop is None or late is OutcomeClass.LINGER:
            # Its word stands. Whatever stops it from now on, or did so while it stayed for nothing, came too late.
            self._interrupted = False
        verdict = self._overdrawn if late is OutcomeClass.BUDGET else None
        verdict = verdict or judge_end(out.reader.facts, await self._end_of(late, exit_, result))
        if self._stop is not AttemptStop.FENCED:
            await self._keeping.end(verdict)
        if self._stop is AttemptStop.CANCELLED:
            about["error"] = self._reason
            return self._told(Verdict(VerdictKind.INTERRUPTED), about, OutcomeClass.CANCELLED)
        if verdict.consequence.class_ is OutcomeClass.OK and result.error:
            return self._told(verdict, {**about, "error": result.error}, OutcomeClass.CHECK)
        if self._stop is None:
            await self._bill(verdict)
        self._verdict, self._wait = verdict, result.wait
        value = self._redact(result.value) if result.value is not None else self._answer(output)
        about["result"] = value if value is not None else out.reader.facts.text[:ANSWER_CHARACTERS] or None
        return self._told(verdict, about)

    def _answer(self, output: OutputPipes) -> JsonValue:
        """What it answered as JSON, if that is fit to be a result."""
        try:
            return Outcome(result=self._redact(self._set_out.reader.facts.structured)).result
        except (ValidationError, RecursionError):
            output.note("its answer cannot be kept as JSON: it is too large, too deep, or no JSON")
            return None

    async def _end_of(self, late: OutcomeClass | None, exit_: ProcessExit, result: ProgramResult) -> AgentEnd:
        facts = self._set_out.reader.facts
        sleeps = facts.sleep is not None and facts.concluded
        why: EndReason | None = "sleep" if sleeps else LATE_REASONS[late] if late is not None else None
        if self._stop is not None and self._interrupted:
            why = "cancelled"
        declared = _declares_no_changes(result.value)
        changed = await self._set_out.has_changed() if self.turn.expects == "changes" else None
        return AgentEnd(exit_.code, exit_.signal, why, changed, declared, wall_ms())

    async def _bill(self, verdict: Verdict) -> None:
        """What the verdict means to the account, and when the run may go on for that."""
        out, accounts = self._set_out, self._agents.availability
        if not verdict.consequence.gate or has_own_billing(out.profile, out.account, self.spec.env):
            return
        until_ms = verdict.reset_at_ms or wall_ms() + GATE_MS
        gates = await self.ask_until_stopped(lambda: accounts.shut(out.agent, out.account, until_ms, verdict.error))
        if gates is None:
            return
        accounts.note(gates)
        if verdict.consequence.run == "defer" and self.turn.on_limit == "defer":
            names = order_accounts(out.profile, self.turn.account)
            other, self._due_at_ms = accounts.first_open(out.agent, names), accounts.opens_at_ms(out.agent, names)
            if other is not None:
                # It goes back at once, and not to its end: somebody else pays.
                self._interrupted = True
                self.stop(AttemptStop.RELEASED, f"{verdict.error}; it goes on with the account {other}")

    def _told(self, verdict: Verdict, about: dict[str, Any], class_: OutcomeClass | None = None) -> Outcome:
        """The outcome that a verdict is."""
        error = verdict.error[: bounds.ERROR_CHARACTERS] or None
        fields = {"class": class_ or verdict.consequence.class_, "error": error, **about}
        if verdict.kind is VerdictKind.LIMITED and self.turn.on_limit == "fail":
            fields["class"] = OutcomeClass.REJECTED
        return Outcome.model_validate({**fields, "agent": self._word(verdict)})

    def _word(self, verdict: Verdict) -> AgentOutcome:
        if self._out is None:
            return AgentOutcome(verdict=verdict.kind)
        facts = self._out.reader.facts
        return AgentOutcome(
            verdict=verdict.kind,
            session=facts.session or self._out.own_session,
            model=facts.model,
            account=self._out.account,
            spent=_to_spending(facts.spent),
            denials=tuple(facts.denials),
            duration_ms=monotonic_ms() - self._began_ms,
        )

    def _report_outcome(self, outcome: Outcome) -> None:
        stopped = self._stop is not None and (self._interrupted or self._stop is not AttemptStop.RELEASED)
        if stopped or self._verdict is None:
            super()._report_outcome(outcome)
            return
        say, claim, does = self.context.send_report, self.claim, self._verdict.consequence.run
        if self._verdict.kind is VerdictKind.SLEEPS:
            say(AttemptReport("park", claim, wait=self._nap()))
        elif does in ("back off", "defer") and outcome.class_ is OutcomeClass.LIMIT:
            say(AttemptReport("defer", claim, outcome, due_at_ms=self._due_at_ms or self._verdict.reset_at_ms))
        else:
            super()._report_outcome(outcome)

    def _nap(self) -> RunWait:
        asked = self._set_out.reader.facts.sleep
        assert asked is not None
        for_ms = min(max(asked.for_ms, 0), bounds.DELAY_MS_MAX)
        return RunWait(for_ms=for_ms, state={WAKE_PROMPT: asked.prompt[:WAKE_PROMPT_CHARACTERS]})


def _declares_no_changes(result: JsonValue) -> bool:
    """Whether it says that nothing has to be changed."""
    return isinstance(result, dict) and NO_CHANGES in result


def _to_spending(spent: SpendingEvent) -> AgentSpending:
    return AgentSpending.model_validate(spent.model_dump(exclude={"type"}))
