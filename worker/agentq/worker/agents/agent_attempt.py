"""Executes an agent's run. Beside what every attempt does (`worker/attempt.py`), it

1. prepares: chooses an account whose gate is open, and the conversation of an earlier attempt or turn;
2. reads the agent's output, logs its events, and counts its spending;
3. ends it when it hangs, exceeds its budget, wants to sleep, or stays after its result;
4. judges the result by what the agent reported, saves the conversation, and applies the table of verdicts.
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
"""How long the gate of an account stays closed that is not logged in, or whose limit has no known end."""
ANSWER_CHARACTERS = bounds.RESULT_BYTES // 8
"""How much of an agent's answer becomes the run's result."""
WAKE_PROMPT_CHARACTERS = bounds.PARKED_STATE_BYTES // 8
"""How much of a sleeping agent's wake prompt is kept."""
LATE_REASONS: dict[OutcomeClass, EndReason] = {
    OutcomeClass.STARTUP: "startup",
    OutcomeClass.LINGER: "linger",
    OutcomeClass.SILENCE: "silence",
    OutcomeClass.TIMEOUT: "timeout",
    OutcomeClass.LIMIT: "refused",
}


class AgentAttempt(RunAttempt):
    """The attempt of an agent's run. Lives on the worker's event loop."""

    def __init__(self, claim: Claim, spec: RunSpec, context: AttemptContext, agents: AgentContext) -> None:
        super().__init__(claim, spec, context)
        self.turn = spec.turn or AgentTurnOptions()
        self._agents = agents
        self._prepared: PreparedAgent | None = None
        self._output_reader: AgentOutputReader
        self._conversation: ConversationUpload
        self._over_budget: Verdict | None = None
        self._verdict: Verdict | None = None
        self._due_at_ms: int | None = None
        self._began_ms = monotonic_ms()

    async def run(self) -> None:
        try:
            await super().run()
        finally:
            self.context.agent_socket.revoke(self.claim)

    # ---- called by the workspace

    @property
    def continues_earlier(self) -> bool:
        """Whether it continues the conversation of an earlier attempt."""
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

    # ---- preparing

    async def _build_launch(self, channel: ResultChannel, resumption: Resumption | None) -> ProcessLaunch:
        preparation = AgentPreparation(self.claim, self.spec, self._agents, self.context.environment, self.ask_server)
        preparation.repair_prompt = self.delivery.repair_prompt if self.delivery is not None else None
        try:
            prepared = await preparation.prepare(resumption, self._log_file().with_name("before"))
        except AccountsAtLimit as shut:
            self._verdict, self._due_at_ms = Verdict(VerdictKind.LIMITED, str(shut), shut.until_ms), shut.until_ms
            if self.turn.account is None:
                # Another worker may have an account that is open; this one takes no such runs for now.
                self.stop(AttemptStop.RELEASED, str(shut))
            raise NotStarted(self._verdict_outcome(self._verdict, {})) from shut
        self.check_not_stopped()
        refusal = prepared.budget.check_start() or (None if prepared.counts_money else prepared.budget.find_uncounted())
        if refusal is not None:
            raise NotStarted(self._verdict_outcome(refusal, {}))
        self._prepared = prepared
        log = partial(self.context.log_upload.log, self.claim)
        self._output_reader = AgentOutputReader(prepared.reader, log, self._on_events)
        self._conversation = ConversationUpload(
            self.claim,
            prepared,
            self._agents,
            self._try_ask,
            lambda sentence: log([LogChunk("note", f"{sanitize_text(sentence)}\n")]),
        )
        await self._conversation.begin()
        self._began_ms = monotonic_ms()
        launch = await prepared.build_launch(self.claim, self.spec, self.context.environment, channel)
        placed_spec = self.spec.model_copy(update={"cwd": str(prepared.cwd)})
        socket_variables = await self.context.agent_socket.admit(self.claim, placed_spec, self._on_progress)
        return replace(launch, env={**launch.env, **socket_variables})

    async def _try_ask(self, ask: Callable[[], Answer]) -> Answer | None:
        """Ask the server until it answers; once only, if the attempt is ending. None if it did not answer."""
        if self._stop is None:
            return await self.ask_until_stopped(ask)
        if self._stop is not AttemptStop.FENCED:
            with suppress(AgentqError):
                return await asyncio.to_thread(ask)
        return None

    def _open_output(self, process: RunProcess) -> OutputPipes:
        log = partial(self.context.log_upload.log, self.claim)
        output = OutputPipes(
            process.stdout, process.stderr, self._log_file(), log, self._output_reader.tap, self._secrets
        )
        for note in self._prepared_agent.notes:
            output.note(note)
        return output

    @property
    def _prepared_agent(self) -> PreparedAgent:
        assert self._prepared is not None
        return self._prepared

    # ---- watching

    def _on_events(self, events: list[AgentEvent]) -> None:
        """The agent has reported something."""
        facts = self._prepared_agent.reader.facts
        self._conversation.on_events(facts)
        if any(isinstance(event, SpendingEvent) for event in events):
            spent = _to_spending(facts.spent)
            self._upload_spending(spent)
            if self._over_budget is None and not facts.concluded:
                self._over_budget = self._prepared_agent.budget.check_spending(spent)
        self._limits_changed.set()

    def _upload_spending(self, spent: AgentSpending) -> None:
        prepared = self._prepared_agent
        totals = prepared.reader.facts.totals if prepared.profile.totals == "conversation" else {}
        self.context.log_upload.spent(self.claim, spent, totals)

    def _limits_left(self, started_ms: int, output: OutputPipes) -> dict[OutcomeClass, int]:
        facts, profile = self._prepared_agent.reader.facts, self._prepared_agent.profile
        left, now = super()._limits_left(started_ms, output), monotonic_ms()
        heard_ms = max(output.last_byte_ms or 0, started_ms)
        if self.spec.silence_timeout_ms is None:
            left[OutcomeClass.SILENCE] = heard_ms + profile.silence_timeout_ms - now
        if not facts.has_output:
            startup_ms = self.turn.startup_timeout_ms or profile.startup_timeout_ms
            left[OutcomeClass.STARTUP] = started_ms + startup_ms - now
        if facts.concluded:
            linger_ms = self.turn.linger_timeout_ms or profile.linger_timeout_ms
            left[OutcomeClass.LINGER] = 0 if facts.sleep is not None else heard_ms + linger_ms - now
        if facts.refused and not facts.concluded:
            left[OutcomeClass.LIMIT] = 0
        if self._over_budget is not None:
            left[OutcomeClass.BUDGET] = 0
        return left

    # ---- the end

    async def _build_outcome(
        self, late: OutcomeClass | None, exit_: ProcessExit, output: OutputPipes, channel: ResultChannel
    ) -> Outcome:
        prepared = self._prepared_agent
        self._output_reader.finish()
        self._upload_spending(_to_spending(prepared.reader.facts.spent))
        result, fields = channel.result(), self._outcome_fields(exit_, output)
        if self._stop is AttemptStop.RELEASED and self._interrupted and prepared.reader.facts.concluded:
            late = OutcomeClass.LINGER
        if self._stop is None or late is OutcomeClass.LINGER:
            # Its result stands: a stop from now on, or while it lingered, came too late.
            self._interrupted = False
        verdict = self._over_budget if late is OutcomeClass.BUDGET else None
        verdict = verdict or judge_end(prepared.reader.facts, await self._describe_end(late, exit_, result))
        if self._stop is not AttemptStop.FENCED:
            await self._conversation.end(verdict)
        if self._stop is AttemptStop.CANCELLED:
            fields["error"] = self._reason
            return self._verdict_outcome(Verdict(VerdictKind.INTERRUPTED), fields, OutcomeClass.CANCELLED)
        if verdict.consequence.class_ is OutcomeClass.OK and result.error:
            return self._verdict_outcome(verdict, {**fields, "error": result.error}, OutcomeClass.CHECK)
        if self._stop is None:
            await self._close_gate(verdict)
        self._verdict, self._wait = verdict, result.wait
        value = self._redact(result.value) if result.value is not None else self._structured_answer(output)
        fields["result"] = value if value is not None else prepared.reader.facts.text[:ANSWER_CHARACTERS] or None
        return self._verdict_outcome(verdict, fields)

    def _structured_answer(self, output: OutputPipes) -> JsonValue:
        """Its answer as JSON, if that is valid as a result."""
        try:
            return Outcome(result=self._redact(self._prepared_agent.reader.facts.structured)).result
        except (ValidationError, RecursionError):
            output.note("its answer cannot be the result: it is too large, too deep, or no JSON")
            return None

    async def _describe_end(self, late: OutcomeClass | None, exit_: ProcessExit, result: ProgramResult) -> AgentEnd:
        facts = self._prepared_agent.reader.facts
        sleeps = facts.sleep is not None and facts.concluded
        why: EndReason | None = "sleep" if sleeps else LATE_REASONS[late] if late is not None else None
        if self._stop is not None and self._interrupted:
            why = "cancelled"
        declared = _declares_no_changes(result.value)
        changed = await self._prepared_agent.has_changed() if self.turn.expects == "changes" else None
        return AgentEnd(exit_.code, exit_.signal, why, changed, declared, wall_ms())

    async def _close_gate(self, verdict: Verdict) -> None:
        """Close the account's gate if the verdict says so, and decide when the run may continue."""
        prepared, accounts = self._prepared_agent, self._agents.availability
        if not verdict.consequence.gate or has_own_billing(prepared.profile, prepared.account, self.spec.env):
            return
        until_ms = verdict.reset_at_ms or wall_ms() + GATE_MS
        gates = await self.ask_until_stopped(
            lambda: accounts.close_gate(prepared.agent, prepared.account, until_ms, verdict.error)
        )
        if gates is None:
            return
        accounts.update(gates)
        if verdict.consequence.run == "defer" and self.turn.on_limit == "defer":
            names = order_accounts(prepared.profile, self.turn.account)
            other, self._due_at_ms = (
                accounts.first_open(prepared.agent, names),
                accounts.opens_at_ms(prepared.agent, names),
            )
            if other is not None:
                # Hand it back at once: another account pays.
                self._interrupted = True
                self.stop(AttemptStop.RELEASED, f"{verdict.error}; it goes on with the account {other}")

    def _verdict_outcome(self, verdict: Verdict, fields: dict[str, Any], class_: OutcomeClass | None = None) -> Outcome:
        """The outcome of a verdict."""
        error = verdict.error[: bounds.ERROR_CHARACTERS] or None
        details = {"class": class_ or verdict.consequence.class_, "error": error, **fields}
        if verdict.kind is VerdictKind.LIMITED and self.turn.on_limit == "fail":
            details["class"] = OutcomeClass.REJECTED
        return Outcome.model_validate({**details, "agent": self._agent_outcome(verdict)})

    def _agent_outcome(self, verdict: Verdict) -> AgentOutcome:
        if self._prepared is None:
            return AgentOutcome(verdict=verdict.kind)
        facts = self._prepared.reader.facts
        return AgentOutcome(
            verdict=verdict.kind,
            session=facts.session or self._prepared.own_session,
            model=facts.model,
            account=self._prepared.account,
            spent=_to_spending(facts.spent),
            denials=tuple(facts.denials),
            duration_ms=monotonic_ms() - self._began_ms,
        )

    def _report_outcome(self, outcome: Outcome) -> None:
        stopped = self._stop is not None and (self._interrupted or self._stop is not AttemptStop.RELEASED)
        if stopped or self._verdict is None:
            super()._report_outcome(outcome)
            return
        send, claim, consequence = self.context.send_report, self.claim, self._verdict.consequence.run
        if self._verdict.kind is VerdictKind.SLEEPS:
            send(AttemptReport("park", claim, wait=self._sleep_wait()))
        elif consequence in ("back off", "defer") and outcome.class_ is OutcomeClass.LIMIT:
            send(AttemptReport("defer", claim, outcome, due_at_ms=self._due_at_ms or self._verdict.reset_at_ms))
        else:
            super()._report_outcome(outcome)

    def _sleep_wait(self) -> RunWait:
        request = self._prepared_agent.reader.facts.sleep
        assert request is not None
        for_ms = min(max(request.for_ms, 0), bounds.DELAY_MS_MAX)
        return RunWait(for_ms=for_ms, state={WAKE_PROMPT: request.prompt[:WAKE_PROMPT_CHARACTERS]})


def _declares_no_changes(result: JsonValue) -> bool:
    """Whether the result declares that nothing has to be changed."""
    return isinstance(result, dict) and NO_CHANGES in result


def _to_spending(spent: SpendingEvent) -> AgentSpending:
    return AgentSpending.model_validate(spent.model_dump(exclude={"type"}))
