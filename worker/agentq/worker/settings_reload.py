"""Reloads settings while the worker runs: which change at once, and which need a restart."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from agentq.worker.options import WorkerOptions

RELOADABLE_FIELDS = ("slots", "queues", "labels", "drain_grace_ms", "worktree_keep_ms", "worktree_disk")


@dataclass(frozen=True, slots=True)
class ReloadedSettings:
    """The settings as read again."""

    options: WorkerOptions
    unchanged: tuple[str, ...] = ()
    """Names of settings that differ from the start but need a restart."""


@dataclass(frozen=True, slots=True)
class SettingsReload:
    """Reads the settings again, and notifies the starter of the worker of the result."""

    read: Callable[[], ReloadedSettings]
    notify: Callable[[str], None]


def apply_settings(before: WorkerOptions, fresh: WorkerOptions) -> tuple[WorkerOptions, list[str]]:
    """Returns the options with every reloadable change applied, and a description of each change."""
    changes = {
        name: getattr(fresh, name) for name in RELOADABLE_FIELDS if getattr(fresh, name) != getattr(before, name)
    }
    descriptions = [
        f"{name} {_format_value(getattr(before, name))} to {_format_value(value)}" for name, value in changes.items()
    ]
    return before.model_copy(update=changes), descriptions


def _format_value(value: object) -> str:
    if isinstance(value, dict):
        return ",".join(f"{name}={each}" for name, each in sorted(value.items())) or "none"
    return ",".join(value) if isinstance(value, tuple) else str(value)


class ControllingTerminal:
    """The terminal that the worker was started from, if any. SIGHUP means "stop" once it is gone."""

    def __init__(self) -> None:
        # Under nohup, the worker outlives its terminal.
        self._had = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN and _has_terminal()

    def is_gone(self) -> bool:
        return self._had and not _has_terminal()


def _has_terminal() -> bool:
    with suppress(OSError):
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
        return True
    return False
