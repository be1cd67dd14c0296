"""The reaper and the schedules as functions for RQ's own `rq cron`; see deploy/rq_cron.py.

It is a safety net beside what workers do for each other all the time. A tick that comes while another runs, or soon
after one, does nothing: so two crons, or a backlog of ticks after a night without workers, cost a command each.
"""

from __future__ import annotations

from agentq.coordinator.duties.reaper import Reaper
from agentq.coordinator.duties.scheduler import Scheduler
from agentq.coordinator.keys import Keyspace, key
from agentq.coordinator.settings import Settings
from agentq.coordinator.store import Store
from agentq.worker.rq.clients import PARTITION, client_of

SKIPPED = "skipped: one ran just before"


def reap() -> str:
    """Requeue what dead workers left."""
    settings, store = _reached()
    if not _turn(settings, "reap", settings.tick_ms):
        return SKIPPED
    reaped = Reaper(store, settings).reap_fully()
    return f"lost {len(reaped.lost)} workers, requeued {reaped.runs} runs"


def tick() -> str:
    """Make the runs that schedules say."""
    settings, store = _reached()
    if not _turn(settings, "tick", settings.tick_ms // 2):
        return SKIPPED
    return f"schedules made {Scheduler(store, settings.tick_ms).run_fully()} runs"


def _reached() -> tuple[Settings, Store]:
    from agentq.coordinator.queue import Queue

    settings = Settings.from_environment()
    return settings, Queue.open(settings, bootstrap=False).store


def _turn(settings: Settings, what: str, every_ms: int) -> bool:
    """Whether nobody did this within the time; then it is our turn."""
    base = Keyspace(settings.namespace, settings.partitions).base(PARTITION)
    return bool(client_of(settings.url).set(key(base, "rq_cron_lock", what), 1, nx=True, px=every_ms))
