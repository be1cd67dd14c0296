"""The reaper and the schedules as functions for RQ's own `rq cron`; see deploy/rq_cron.py.

It is a safety net beside what workers do for each other all the time. A tick that comes while another runs, or soon
after one, does nothing: so two crons, or a backlog of ticks after a night without workers, cost a command each.
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
    """Requeue what dead workers left."""
    settings, store = _open_store()
    if not _take_turn(settings, "reap", settings.tick_ms):
        return SKIPPED_MESSAGE
    reaped = Reaper(store, settings).reap_fully()
    return f"lost {len(reaped.lost)} workers, requeued {reaped.runs} runs"


def tick() -> str:
    """Make the runs that schedules say."""
    settings, store = _open_store()
    if not _take_turn(settings, "tick", settings.tick_ms // 2):
        return SKIPPED_MESSAGE
    return f"schedules made {Scheduler(store, settings.tick_ms).run_fully()} runs"


def _open_store() -> tuple[Settings, NamespaceStore]:
    from agentq.coordinator.runs.verbs import RunVerbs

    settings = Settings.from_environment()
    return settings, RunVerbs.open(settings, bootstrap=False).store


def _take_turn(settings: Settings, what: str, every_ms: int) -> bool:
    """Whether nobody did this within the time; then it is our turn."""
    base = Keyspace(settings.namespace, settings.partitions).base(RQ_PARTITION)
    return bool(create_client(settings.url).set(build_key(base, "rq_cron_lock", what), 1, nx=True, px=every_ms))
