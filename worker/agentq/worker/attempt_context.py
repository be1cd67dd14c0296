"""What an attempt needs of its worker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from agentq.coordinator.runs.verbs import RunVerbs
from agentq.worker.agents.profiles.registry import ProfileRegistry
from agentq.worker.process.process_tree import Cgroups
from agentq.worker.process.run_environment import RunEnvironment
from agentq.worker.reporting.log_upload import LogUpload
from agentq.worker.reporting.report_sender import AttemptReport
from agentq.worker.run_api.agent_socket import AgentSocket
from agentq.worker.run_api.result_channel import ResultChannels
from agentq.worker.workspace.workspaces import WorkerWorkspaces


@dataclass(frozen=True, slots=True)
class AttemptContext:
    """See above."""

    environment: RunEnvironment
    cgroups: Cgroups | None
    log_folder: Path
    channels: ResultChannels
    send_report: Callable[[AttemptReport], None]
    log_upload: LogUpload
    agent_socket: AgentSocket
    """Where agents may use agentq for their runs."""
    queue: RunVerbs
    """What the server is asked; in a thread, as it may be slow or away."""
    workspaces: WorkerWorkspaces
    profiles: Callable[[], ProfileRegistry]
    """Of the agents that are here."""
