"""Prepares an agent's attempt: everything decided before its process starts.

Account, conversation, prompt, budget, and a fingerprint of the folder.
"""

from __future__ import annotations

import asyncio
import socket
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from agentq.coordinator.errors import Invalid, NotFound
from agentq.coordinator.model.agent_options import AgentTurnOptions
from agentq.coordinator.model.lifecycle import OutcomeClass
from agentq.coordinator.model.spec import Outcome, ResourceLimits, RunSpec
from agentq.coordinator.runs.verbs import Claim
from agentq.coordinator.runs.wait import Resumption
from agentq.coordinator.sessions.conversations import AgentConversation
from agentq.worker.agents.accounts import billing
from agentq.worker.agents.accounts.budget_limits import BudgetAllowance, BudgetLimits
from agentq.worker.agents.accounts.pricing import find_price
from agentq.worker.agents.agent_context import AgentContext
from agentq.worker.agents.formats.registry import create_reader
from agentq.worker.agents.profiles.command_line import AgentLaunch, ConversationMode, build_command, is_variable_passed
from agentq.worker.agents.profiles.profile import Profile
from agentq.worker.agents.profiles.trust import find_refusal
from agentq.worker.agents.prompts import build_prompt, format_hints
from agentq.worker.agents.reader import AgentReader, PriorConversation
from agentq.worker.agents.transcripts import find_transcripts, pack_transcript, restore_transcript
from agentq.worker.agents.tree_fingerprint import Fingerprint
from agentq.worker.attempt import Answer
from agentq.worker.attempt_stop import NotStarted
from agentq.worker.process.run_environment import RunEnvironment
from agentq.worker.process.run_process import ProcessLaunch
from agentq.worker.run_api.result_channel import ResultChannel


class AskServer(Protocol):
    """Asks the server until it answers; raises `NotStarted` if the attempt is stopped."""

    def __call__(self, ask: Callable[[], Answer], /) -> Awaitable[Answer]: ...


class AccountsAtLimit(Exception):
    """All usable accounts are at their limits until a time."""

    def __init__(self, sentence: str, until_ms: int) -> None:
        super().__init__(sentence)
        self.until_ms = until_ms


@dataclass(slots=True)
class PreparedAgent:
    """The decisions for one attempt."""

    agent: str
    profile: Profile
    account: str
    conversation: AgentConversation
    mode: ConversationMode
    session: str | None
    """The agent's id of the conversation, where known before the agent reports it."""
    question: str
    reader: AgentReader
    budget: BudgetLimits
    model: str | None
    """The requested model, if any."""
    cwd: Path
    env: Mapping[str, str]
    """The agent's variables, as far as they decide where its conversations are."""
    fingerprint: Fingerprint | None
    """The folder before the first attempt; None if not requested or unknown."""
    notes: list[str] = field(default_factory=list)
    """Sentences for the log."""

    @property
    def own_session(self) -> str | None:
        """The session, unless this turn forks it: the new one has no id before the agent reports it."""
        return None if self.mode == "fork" else self.session

    async def build_launch(
        self, claim: Claim, spec: RunSpec, environment: RunEnvironment, channel: ResultChannel
    ) -> ProcessLaunch:
        """The process to start; writes the files of its prompts."""
        file, system_file = channel.folder / "prompt", channel.folder / "system-prompt"
        agent_launch = AgentLaunch(
            agent=self.agent,
            profile=self.profile,
            prompt=self.question,
            turn=spec.turn or AgentTurnOptions(),
            account=self.account,
            mode=self.mode,
            session=self.session,
            model=self.model,
            remaining=self.budget.remaining(),
            prompt_file=file if self.profile.prompt == "file" else None,
            system_file=system_file,
        )
        command = check_preparation(lambda: build_command(agent_launch, environment.inherited))
        for path, content in ((file, command.prompt_file), (system_file, command.system_file)):
            if content is not None:
                path.touch(mode=0o600)
                path.write_bytes(content)
        env = environment.build(claim, spec, channel.variables(), defaults=command.env)
        return ProcessLaunch(
            command.argv, env, self.cwd, environment.cookie(claim), spec.caps or ResourceLimits(), command.stdin
        )

    async def has_changed(self) -> bool | None:
        """Whether its folder differs from before the first attempt."""
        now = await Fingerprint.of(self.cwd)
        return None if self.fingerprint is None or now is None else now != self.fingerprint

    @property
    def counts_money(self) -> bool:
        """Whether its cost will be known: the agent reports it, or its model has a price."""
        return self.profile.reports_cost or find_price(_read_prices(self.profile), self.model) is not None

    def pack_transcript(self, session: str) -> bytes | None:
        """The transcript as it is now; None if there is none that can move."""
        return pack_transcript(self.profile, self.env, session)


class AgentPreparation:
    """Decides for one attempt."""

    def __init__(
        self, claim: Claim, spec: RunSpec, agents: AgentContext, environment: RunEnvironment, ask: AskServer
    ) -> None:
        self.claim = claim
        self.spec = spec
        self.turn = spec.turn or AgentTurnOptions()
        self.agent = spec.agent or ""
        self.profile = check_preparation(lambda: agents.profiles.get(self.agent))
        self._agents = agents
        self._environment = environment
        self._ask = ask
        self._notes: list[str] = []
        self._is_first = claim.fence.partition("-")[0] == "1"
        self.repair_prompt: str | None = None
        """The prompt in place of its own, for an agent that has to repair its work."""

    async def prepare(self, resumption: Resumption | None, fingerprint_path: Path) -> PreparedAgent:
        """Raises `NotStarted` if the run ends here, and `AccountsAtLimit` if it has to wait."""
        conversation = await self._ask(lambda: self._agents.conversations.open(self.claim))
        cwd = Path(self.spec.cwd or conversation.cwd or Path.home())
        refused = find_refusal(self.agent, self.profile, self.turn, cwd)
        if refused is not None:
            raise NotStarted(Outcome(class_=OutcomeClass.REJECTED, error=refused))
        account = await self._choose_account()
        env = self._build_env(account)
        session = await self._restore_session(conversation, account, env)
        mode: ConversationMode = "begin" if session is None else "fork" if conversation.fork else "resume"
        model = self.turn.model or conversation.model
        goes_on = mode != "begin" and self.profile.totals == "conversation"
        prior = PriorConversation(conversation.totals if goes_on else {}, _read_prices(self.profile), model)
        return PreparedAgent(
            agent=self.agent,
            profile=self.profile,
            account=account,
            conversation=conversation,
            mode=mode,
            session=session or (str(uuid.uuid4()) if self.profile.takes_id else None),
            question=build_prompt(
                self.spec,
                resumption,
                interrupted=mode == "resume" and conversation.has_earlier_attempt,
                repair_prompt=self.repair_prompt,
            )
            + format_hints(await self._ask(lambda: self._agents.queue.mail(self.claim))),
            reader=create_reader(self.profile.format, prior),
            budget=self._build_budget(conversation),
            model=model,
            cwd=cwd,
            env=env,
            fingerprint=await self._take_fingerprint(cwd, fingerprint_path),
            notes=self._notes,
        )

    def _build_env(self, account: str) -> dict[str, str]:
        inherited = self._environment.inherited
        needed = {name: value for name, value in inherited.items() if is_variable_passed(self.profile, name)}
        own = check_preparation(lambda: billing.build_account_variables(self.profile, account, inherited))
        return {**self._environment.passed(), **needed, **self.profile.env, **own, **self.spec.env}

    async def _choose_account(self) -> str:
        names = check_preparation(lambda: billing.order_accounts(self.profile, self.turn.account))
        availability = self._agents.availability
        gates = await self._ask(lambda: availability.read_gates(self.agent))
        availability.update(gates)
        account = availability.first_open(self.agent, names)
        if account is None:
            what = f"account {names[0]} of {self.agent} is" if names[1:] == [] else f"accounts of {self.agent} are all"
            raise AccountsAtLimit(f"the {what} shut", availability.opens_at_ms(self.agent, names))
        return account

    async def _restore_session(
        self, conversation: AgentConversation, account: str, env: Mapping[str, str]
    ) -> str | None:
        """The agent's id of the conversation to continue, with its transcript restored; None for a new one."""
        session = conversation.agent_session
        if not session or not self.profile.resumes:
            return None
        if self.profile.transcript is None:
            return session
        at_home = conversation.host == socket.gethostname() and conversation.account in (None, account)
        if at_home and await asyncio.to_thread(lambda: bool(find_transcripts(self.profile, env, session))):
            return session
        try:
            body = await self._ask(lambda: self._agents.conversations.carried(self.claim))
            if body is None:
                where = "gone" if at_home else f"on {conversation.host}, and was not carried from there"
                raise Invalid(f"The conversation {session} is {where}.")
            await asyncio.to_thread(restore_transcript, self.profile, env, session, body)
        except Invalid as invalid:
            self._notes.append(f"{invalid} So it begins anew.")
            return None
        return session

    def _build_budget(self, conversation: AgentConversation) -> BudgetLimits:
        spent = conversation.spent
        allowances = []
        if self.turn.budgets is not None:
            allowances.append(BudgetAllowance("run", self.turn.budgets, spent.run))
        if conversation.budgets is not None and spent.session is not None:
            allowances.append(BudgetAllowance("session", conversation.budgets, spent.session))
        return BudgetLimits(*allowances, reports_cost=self.profile.reports_cost)

    async def _take_fingerprint(self, cwd: Path, path: Path) -> Fingerprint | None:
        """The folder before the first attempt, which saves it for later attempts on this machine."""
        if self.turn.expects != "changes":
            return None
        if not self._is_first:
            return Fingerprint.read(path)
        before = await Fingerprint.of(cwd)
        if before is None:
            why = f"It is to change something, and git cannot tell what changes in {cwd}, which is in no repository."
            raise NotStarted(
                Outcome(class_=OutcomeClass.REJECTED, error=f"{why} Start it in one, or do not expect changes.")
            )
        before.write(path)
        return before


def check_preparation(ask: Callable[[], Answer]) -> Answer:
    """Call; the run ends as rejected if what was asked is invalid."""
    try:
        return ask()
    except (Invalid, NotFound) as refused:
        raise NotStarted(Outcome(class_=OutcomeClass.REJECTED, error=str(refused))) from refused


def _read_prices(profile: Profile) -> dict[str, dict[str, float]]:
    return {model: price.model_dump() for model, price in profile.prices.items()}
