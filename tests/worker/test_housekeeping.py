"""The worker's folder does not grow for ever."""

from __future__ import annotations

import os
from pathlib import Path

from agentq.coordinator.clock import wall_ms
from agentq.coordinator.limits import KEEP_MS
from agentq.worker.housekeeping import tidy_home


def test_what_nobody_wrote_to_for_a_week_goes_and_what_is_in_use_stays(tmp_path: Path) -> None:
    old_ms = wall_ms() - KEEP_MS - 60_000
    for name, written_ms in (("old", old_ms), ("long", wall_ms()), ("new", wall_ms())):
        folder = tmp_path / "logs" / name
        folder.mkdir(parents=True)
        (folder / "1.log").write_text("x")
        os.utime(folder / "1.log", ns=(written_ms * 1_000_000,) * 2)
        os.utime(folder, ns=((old_ms if name != "new" else written_ms) * 1_000_000,) * 2)

    assert tidy_home(tmp_path) == 1
    assert sorted(path.name for path in (tmp_path / "logs").iterdir()) == ["long", "new"]


def test_a_folder_that_is_not_there_is_tidy(tmp_path: Path) -> None:
    assert tidy_home(tmp_path) == 0
