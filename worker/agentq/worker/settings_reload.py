"""Settings that are read again while the worker works: what changes at once, and what needs a new start."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentq.coordinator.errors import AgentqError
from agentq.worker.options import WorkerOptions

if TYPE_CHECKING:
    from agentq.worker.worker import WorkerProcess

RELOADABLE_FIELDS = ("slots", "queues", "labels", "drain_grace_ms", "worktree_keep_ms", "worktree_disk")


@dataclass(frozen=True, slots=True)
class ReloadedSettings:
    """What the settings are now."""

    options: WorkerOptions
    left: tuple[str, ...] = ()
    """Settings that are no longer what they were at the start, and count only after the next one."""


@dataclass(frozen=True, slots=True)
class SettingsReload:
    """How to read the settings again, and how to tell whoever started the worker what came of it."""

    read: Callable[[], ReloadedSettings]
    say: Callable[[str], None]


def reload_settings(worker: WorkerProcess, reload: SettingsReload) -> list[str]:
    """Take over what has changed, all of it or nothing; says what came of it."""
    try:
        fresh = reload.read()
        options, words = apply_settings(worker.options, fresh.options)
        worker.offering.look_again()
        labels = worker.offering.labels(options.labels)
        seen = {"slots": options.slots, "queues": options.queues, "labels": labels}
        identity = worker.identity.model_copy(update=seen)
        identity.check_size()
    except (AgentqError, OSError) as error:
        return [f"the settings stay as they were. {error}"]
    worker.options = options
    worker.hands.resize(options.slots)
    if identity != worker.identity:
        worker.identity = identity
        worker.pulse.change(identity)
    sentences = [f"read the settings again: {'; '.join(words) or 'nothing to change'}."]
    if fresh.left:
        sentences.append(f"{', '.join(fresh.left)} cannot change while a worker works; start it again for that.")
    return sentences


def apply_settings(before: WorkerOptions, fresh: WorkerOptions) -> tuple[WorkerOptions, list[str]]:
    """The options with all that can change while a worker works, and what that is in words."""
    changes = {
        name: getattr(fresh, name) for name in RELOADABLE_FIELDS if getattr(fresh, name) != getattr(before, name)
    }
    words = [
        f"{name} {_format_value(getattr(before, name))} to {_format_value(value)}" for name, value in changes.items()
    ]
    return before.model_copy(update=changes), words


def _format_value(value: object) -> str:
    if isinstance(value, dict):
        return ",".join(f"{name}={each}" for name, each in sorted(value.items())) or "none"
    return ",".join(value) if isinstance(value, tuple) else str(value)


class ControllingTerminal:
    """The terminal that the worker was started from, if any: when that goes, SIGHUP means something else."""

    def __init__(self) -> None:
        # With nohup, a worker outlives its terminal.
        self._had = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN and _has_terminal()

    def is_gone(self) -> bool:
        return self._had and not _has_terminal()


def _has_terminal() -> bool:
    with suppress(OSError):
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
        return True
    return False
