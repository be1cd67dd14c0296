"""The services of the worker that an attempt uses."""

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
    """Everything that an attempt gets from its worker."""

    environment: RunEnvironment
    cgroups: Cgroups | None
    log_folder: Path
    channels: ResultChannels
    send_report: Callable[[AttemptReport], None]
    log_upload: LogUpload
    agent_socket: AgentSocket
    """The socket on which agents use agentq for their runs."""
    queue: RunVerbs
    """Calls to the server. Made in a thread, because the server may be slow or away."""
    workspaces: WorkerWorkspaces
    profiles: Callable[[], ProfileRegistry]
    """Returns the profiles of the agents installed here."""
