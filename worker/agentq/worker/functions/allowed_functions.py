"""Which functions a worker calls: tasks, and functions in modules that its operator has named.

1. A task may be called: its author meant it to be.
2. Other functions may be called if they are defined in a module that `[worker] functions` names, or below it.
3. RQ's jobs come through functions of agentq, which are called for runs of RQ's queues alone.
4. The standard library is not even imported, and no path leads from one module into another:
   `agentq.sdk.functions.codec`.
"""

from __future__ import annotations

from collections.abc import Sequence

from agentq.coordinator.errors import NotAllowed
from agentq.coordinator.model.spec import parse_lane
from agentq.sdk.functions.codec import Function, load_function
from agentq.worker.rq.queue_names import is_rq_related

RQ_FUNCTIONS = frozenset(f"agentq.worker.rq.job:{name}" for name in ("perform", "settle", "tidy"))


class AllowedFunctions:
    """The functions that one worker may call."""

    def __init__(self, modules: Sequence[str]) -> None:
        self._modules = tuple(modules)

    def load(self, path: str, lane: str) -> Function:
        """The function of a path, for a run of this lane; refuses what may not be called."""
        module, _, name = path.partition(":")
        if path in RQ_FUNCTIONS and is_rq_related(parse_lane(lane)["queue"]):
            return load_function(path)
        if any(part.startswith("__") for part in name.split(".")):
            raise NotAllowed(f"{path} is internal to Python, and no run may call it.")
        function = load_function(path)
        if not function.is_task and not (self._is_named(module) and self._is_named(function.module)):
            raise NotAllowed(
                f"{path} is not a task: put @agentq.task above it, or name its module to the worker, as in "
                f"AGENTQ_WORKER_FUNCTIONS={module}."
            )
        return function

    def _is_named(self, module: str) -> bool:
        return any(module == each or module.startswith(f"{each}.") for each in self._modules)


def is_cacheable(path: str) -> bool:
    """Whether a child may remember that it may call a function, for any run."""
    return path not in RQ_FUNCTIONS
