"""An agent that resolves conflicts of a command's work, or in place of the agent that did the work.

It begins a conversation of its own in the run's worktree, into which the target was merged with its conflicts, and is
told no more than that. Its spending is in the log, and not in the run's sum.
"""

from __future__ import annotations

import uuid
from dataclasses import replace

from agentq.coordinator.errors import Invalid, NotFound
from agentq.coordinator.model.agent_options import AgentTurnOptions
from agentq.coordinator.model.spec import RunSpec
from agentq.worker.agents.formats.registry import create_reader
from agentq.worker.agents.output_reader import AgentOutputReader
from agentq.worker.agents.profiles.command_line import AgentLaunch, build_command
from agentq.worker.agents.profiles.trust import find_refusal
from agentq.worker.agents.reader import PriorConversation
from agentq.worker.agents.verdict_rules import AgentEnd, judge_end
from agentq.worker.agents.verdicts import VerdictKind
from agentq.worker.workspace.command_runner import WorkspaceCommand
from agentq.worker.workspace.workspace_attempt import WorkspaceAttempt
from agentq.worker.workspace.workspace_commands import WorkspaceCommands

RESOLVER_TIMEOUT_MS = 3_600_000
"""The timeout for a run that has none of its own."""


class ResolverAgent:
    """Resolves the conflicts of one attempt."""

    def __init__(self, attempt: WorkspaceAttempt, spec: RunSpec, commands: WorkspaceCommands) -> None:
        assert spec.workspace is not None
        self._attempt = attempt
        self._spec = spec
        self._name = spec.workspace.resolver or ""
        self._commands = commands

    async def resolve(self, prompt: str) -> str | None:
        """Run the agent; returns one sentence if it failed."""
        self._attempt.progress(f"has its conflicts resolved by {self._name}")
        try:
            command, output = self._build_command(prompt)
        except (Invalid, NotFound) as unfit:
            return f"the resolver {self._name} cannot be started: {unfit}"
        result = await self._commands.run(command)
        output.finish()
        verdict = judge_end(output.reader.facts, AgentEnd(0 if result.error is None else 1))
        if verdict.kind in (VerdictKind.OK, VerdictKind.OK_WITH_DENIALS):
            return None
        return f"the resolver {self._name} failed: {verdict.error or result.error}"

    def _build_command(self, prompt: str) -> tuple[WorkspaceCommand, AgentOutputReader]:
        """The command to run, and the reader of its output."""
        context, folder = self._attempt.context, self._commands.folder
        profile = context.profiles().get(self._name)
        turn = self._spec.turn or AgentTurnOptions()
        refused = find_refusal(self._name, profile, turn, folder)
        if refused is not None:
            raise Invalid(refused)
        file = context.log_folder / self._attempt.claim.id / "prompt" if profile.prompt == "file" else None
        session = str(uuid.uuid4()) if profile.takes_id else None
        options = AgentTurnOptions(permissions=turn.permissions, trust=turn.trust)
        launch = AgentLaunch(self._name, profile, prompt, options, session=session, prompt_file=file)
        agent_command = build_command(launch, context.environment.inherited)
        if file is not None and agent_command.prompt_file is not None:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            file.touch(mode=0o600)
            file.write_bytes(agent_command.prompt_file)
        output = AgentOutputReader(
            create_reader(profile.format, PriorConversation()), self._attempt.log, lambda _: None
        )
        command = self._commands.build_command(
            "resolver", agent_command.argv, folder, self._spec.timeout_ms or RESOLVER_TIMEOUT_MS, agent_command.env
        )
        return replace(command, stdin=agent_command.stdin, tap=output.tap), output
