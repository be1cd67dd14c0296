"""agentq from Python: functions that run elsewhere, and what becomes of them. See README.md.

What speaks to a server is imported when it is first asked for: a child that only makes calls starts in half the time.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from agentq.coordinator.errors import AgentqError, Invalid
from agentq.coordinator.model.lifecycle import State
from agentq.coordinator.model.retry_policy import RetryPolicy
from agentq.sdk.errors import (
    Cancelled,
    Fail,
    ImportFailed,
    NotInARun,
    PartlyRefused,
    Retry,
    RunCancelled,
    RunFailed,
    RunSkipped,
    SoftTimeout,
    StillGoing,
)
from agentq.sdk.functions.folder_store import Folder
from agentq.sdk.functions.result_store import Store, register_store
from agentq.sdk.options import Options
from agentq.sdk.run_context import Approval, Parked, RunContext, current_run

if TYPE_CHECKING:
    from agentq.sdk.agent_options import AgentOptions
    from agentq.sdk.async_client import AsyncClient
    from agentq.sdk.async_handles import AsyncRun, AsyncSession
    from agentq.sdk.client import Client, connect, connect_async, default_client, set_default_client
    from agentq.sdk.functions.task import Task, task
    from agentq.sdk.run_handle import Run
    from agentq.sdk.sessions import Session
    from agentq.sdk.wait.gather import as_completed, gather, gather_async

__all__ = [
    "AgentOptions",
    "AgentqError",
    "Approval",
    "AsyncClient",
    "AsyncRun",
    "AsyncSession",
    "Cancelled",
    "Client",
    "Fail",
    "Folder",
    "ImportFailed",
    "Invalid",
    "NotInARun",
    "Options",
    "Parked",
    "PartlyRefused",
    "Retry",
    "RetryPolicy",
    "Run",
    "RunCancelled",
    "RunContext",
    "RunFailed",
    "RunSkipped",
    "Session",
    "SoftTimeout",
    "State",
    "StillGoing",
    "Store",
    "Task",
    "as_completed",
    "connect",
    "connect_async",
    "current_run",
    "default_client",
    "gather",
    "gather_async",
    "register_store",
    "set_default_client",
    "task",
]

_LAZY_EXPORTS = {
    "agent_options": ("AgentOptions",),
    "async_client": ("AsyncClient",),
    "async_handles": ("AsyncRun", "AsyncSession"),
    "client": ("Client", "connect", "connect_async", "default_client", "set_default_client"),
    "wait.gather": ("as_completed", "gather", "gather_async"),
    "run_handle": ("Run",),
    "sessions": ("Session",),
    "functions.task": ("Task", "task"),
}


def __getattr__(name: str) -> Any:
    for module, names in _LAZY_EXPORTS.items():
        if name in names:
            value = globals()[name] = getattr(import_module(f"agentq.sdk.{module}"), name)
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
