"""agentq from Python. The public names are those that are imported here."""

from agentq.sdk.context import Approval, Parked, RunContext, current_run
from agentq.sdk.errors import Cancelled, Fail, ImportFailed, NotInARun, Retry, SoftTimeout

__all__ = [
    "Approval",
    "Cancelled",
    "Fail",
    "ImportFailed",
    "NotInARun",
    "Parked",
    "Retry",
    "RunContext",
    "SoftTimeout",
    "current_run",
]
