"""The reaper and the schedules as functions for RQ's own `rq cron`; see deploy/rq_cron.py.

A safety net: workers reap and schedule anyway. A tick during another one, or soon after it, does nothing, so that two
crons, or a backlog of ticks after a night without workers, cost one command each.
"""

from __future__ import annotations

from agentq.coordinator.config.settings import Settings
from agentq.coordinator.duties.reaper import Reaper
from agentq.coordinator.duties.scheduler import Scheduler
from agentq.coordinator.storage.keys import Keyspace, build_key
from agentq.coordinator.storage.store import NamespaceStore
from agentq.worker.rq.redis_client import RQ_PARTITION, create_client

SKIPPED_MESSAGE = "skipped: one ran just before"


def reap() -> str:
    """Requeue the runs of dead workers."""
    settings, store = _open_store()
    if not _acquire_turn(settings, "reap", settings.tick_ms):
        return SKIPPED_MESSAGE
    reaped = Reaper(store, settings).reap_fully()
    return f"lost {len(reaped.lost)} workers, requeued {reaped.runs} runs"


def tick() -> str:
    """Create the runs that schedules have due."""
    settings, store = _open_store()
    if not _acquire_turn(settings, "tick", settings.tick_ms // 2):
        return SKIPPED_MESSAGE
    return f"schedules made {Scheduler(store, settings.tick_ms).run_fully()} runs"


def _open_store() -> tuple[Settings, NamespaceStore]:
    from agentq.coordinator.runs.verbs import RunVerbs

    settings = Settings.from_environment()
    return settings, RunVerbs.open(settings, bootstrap=False).store


def _acquire_turn(settings: Settings, duty: str, every_ms: int) -> bool:
    """Whether no other call did this within `every_ms`."""
    base = Keyspace(settings.namespace, settings.partitions).base(RQ_PARTITION)
    return bool(create_client(settings.url).set(build_key(base, "rq_cron_lock", duty), 1, nx=True, px=every_ms))
