"""agentq from Python: functions that run elsewhere, and what becomes of them. See README.md.

What speaks to a server is imported when it is first asked for: a child that only makes calls starts in half the time.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from agentq.coordinator.errors import AgentqError, Invalid
from agentq.coordinator.lifecycle import State
from agentq.coordinator.policy import RetryPolicy
from agentq.sdk.context import Approval, Parked, RunContext, current_run
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
from agentq.sdk.folder import Folder
from agentq.sdk.options import Options
from agentq.sdk.stores import Store, register_store

if TYPE_CHECKING:
    from agentq.sdk.agents import AgentOptions
    from agentq.sdk.aio import AsyncClient, AsyncRun, connect_async
    from agentq.sdk.client import Client, connect, default_client, set_default_client
    from agentq.sdk.gathering import as_completed, gather, gather_async
    from agentq.sdk.handles import Run
    from agentq.sdk.sessions import AsyncSession, Session
    from agentq.sdk.tasks import Task, task

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

_LATER = {
    "agents": ("AgentOptions",),
    "aio": ("AsyncClient", "AsyncRun", "connect_async"),
    "client": ("Client", "connect", "default_client", "set_default_client"),
    "gathering": ("as_completed", "gather", "gather_async"),
    "handles": ("Run",),
    "sessions": ("AsyncSession", "Session"),
    "tasks": ("Task", "task"),
}


def __getattr__(name: str) -> Any:
    for module, names in _LATER.items():
        if name in names:
            value = globals()[name] = getattr(import_module(f"agentq.sdk.{module}"), name)
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
