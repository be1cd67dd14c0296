"""The configuration of children: shared by all of a worker, besides what a run has for itself."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from agentq.coordinator.config.settings import Settings
from agentq.coordinator.model.spec import parse_lane
from agentq.worker.options import WorkerOptions
from agentq.worker.process.cgroups import Cgroups
from agentq.worker.process.process_tree import WORKER_VARIABLE
from agentq.worker.process.run_environment import PASSED_PREFIXES, PASSED_VARIABLES
from agentq.worker.rq.queue_names import is_rq_queue

WITHHELD_VARIABLES = frozenset(
    f"AGENTQ_{name}" for name in ("URL", "URL_FILE", "TOKEN", "TOKEN_FILE", "WORKER_TOKEN", "WORKER_TOKEN_FILE")
)


@dataclass(frozen=True, slots=True)
class ChildConfig:
    """The configuration of a worker's children."""

    namespace: str
    environment: Mapping[str, str]
    """Without the server's address and credentials."""
    url: str = ""
    """The server's address, for the SDK in children that may know it."""
    functions: tuple[str, ...] = ()
    """Modules whose functions may be called although they are no tasks."""
    server_queues: tuple[str, ...] | None = None
    """Queues whose runs may know the server; if None, all runs but those that choose what code is imported."""
    shares_server: bool = True
    """Whether children that are shared know the server."""
    cgroups: Cgroups | None = None
    memory_bytes: int | None = None
    """The hard memory limit of each child."""
    rss_bytes: int | None = None
    """A child larger than this is replaced,"""
    calls_max: int | None = None
    """and one that was sent this many calls."""
    async_calls: int = 100

    @classmethod
    def of(cls, settings: Settings, options: WorkerOptions, worker: str, cgroups: Cgroups | None) -> ChildConfig:
        """The configuration for a worker: children get its environment without the way to the server."""
        environment = {**os.environ, **settings.to_environment(), WORKER_VARIABLE: worker}
        named = options.server_queues
        return cls(
            namespace=settings.namespace,
            environment={name: value for name, value in environment.items() if name not in WITHHELD_VARIABLES},
            url=settings.url,
            functions=options.functions,
            server_queues=named,
            shares_server=named is None or any(is_rq_queue(queue) or queue in named for queue in options.queues),
            cgroups=cgroups,
            memory_bytes=options.child_memory,
            rss_bytes=options.child_rss,
            calls_max=options.child_runs,
            async_calls=options.async_calls,
        )

    def own(self, lane: str, caps: Mapping[str, int], env: Mapping[str, str], cwd: str | None) -> OwnChildConfig | None:
        """What the run's own child has besides; None if a shared child will do."""
        queue = parse_lane(lane)["queue"]
        if is_rq_queue(queue):
            knows_server = True
        elif self.server_queues is None:
            knows_server = not (env or cwd)
        else:
            knows_server = queue in self.server_queues
        return (
            OwnChildConfig(caps, env, cwd, knows_server)
            if caps or env or cwd or knows_server < self.shares_server
            else None
        )

    @property
    def has_one_policy(self) -> bool:
        """Whether a run's own fields alone decide about its child."""
        return self.server_queues is None or not self.shares_server

    def variables(self, own: OwnChildConfig | None) -> dict[str, str]:
        """The environment of a child. Code chosen by a run sees no more of the worker's environment than a command."""
        if own is None or not own.brings_code or own.knows_server:
            return {**self.environment, **(own.environment if own else {})}
        passed = {name: value for name, value in self.environment.items() if is_variable_passed(name)}
        return {**passed, **own.environment}


@dataclass(frozen=True, slots=True)
class OwnChildConfig:
    """What the child of one run has besides."""

    caps: Mapping[str, int] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None
    knows_server: bool = True

    @property
    def brings_code(self) -> bool:
        """Whether the run chooses what code is imported, by a folder or variables."""
        return bool(self.environment or self.cwd)


def is_variable_passed(name: str) -> bool:
    """Whether code chosen by a run sees a variable of the worker: those that commands see, and Python's own."""
    return name in PASSED_VARIABLES or name.startswith((*PASSED_PREFIXES, "PYTHON", "VIRTUAL_ENV", "AGENTQ_"))
