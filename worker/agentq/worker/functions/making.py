"""What children are made of: the same for all of a worker's, but for one that a run has for itself."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from agentq.coordinator.settings import Settings
from agentq.worker.cgroups import Cgroups
from agentq.worker.options import WorkerOptions
from agentq.worker.tree import WORKER


@dataclass(frozen=True, slots=True)
class Making:
    """What children are made of."""

    namespace: str
    environment: Mapping[str, str]
    cgroups: Cgroups | None = None
    memory_bytes: int | None = None
    """The hard limit of each."""
    rss_bytes: int | None = None
    """One that has grown above this is replaced,"""
    calls_most: int | None = None
    """and one that has been sent so many calls."""
    async_calls: int = 100

    @classmethod
    def of(cls, settings: Settings, options: WorkerOptions, worker: str, cgroups: Cgroups | None) -> Making:
        """For the children of a worker: they have all of its environment, and know the server that it is told of."""
        return cls(
            namespace=settings.namespace,
            environment={**os.environ, **settings.to_environment(), WORKER: worker},
            cgroups=cgroups,
            memory_bytes=options.child_memory,
            rss_bytes=options.child_rss,
            calls_most=options.child_runs,
            async_calls=options.async_calls,
        )


@dataclass(frozen=True, slots=True)
class Own:
    """What the child of one run alone has besides."""

    caps: Mapping[str, int] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None
