"""The worker's folder does not grow for ever."""

from __future__ import annotations

import os
from pathlib import Path

from agentq.coordinator.bounds import KEEP_MS
from agentq.coordinator.clock import wall_ms
from agentq.worker.cleanup.host_cleanup import remove_old_folders
from agentq.worker.cleanup.takeover import RemoteWorkerNotes


def test_what_nobody_wrote_to_for_a_week_goes_and_what_is_in_use_stays(tmp_path: Path) -> None:
    old_ms = wall_ms() - KEEP_MS - 60_000
    for name, written_ms in (("old", old_ms), ("long", wall_ms()), ("new", wall_ms())):
        folder = tmp_path / "logs" / name
        folder.mkdir(parents=True)
        (folder / "1.log").write_text("x")
        os.utime(folder / "1.log", ns=(written_ms * 1_000_000,) * 2)
        os.utime(folder, ns=((old_ms if name != "new" else written_ms) * 1_000_000,) * 2)

    assert remove_old_folders(tmp_path) == 1
    assert sorted(path.name for path in (tmp_path / "logs").iterdir()) == ["long", "new"]


def test_a_folder_that_is_not_there_is_tidy(tmp_path: Path) -> None:
    assert remove_old_folders(tmp_path) == 0


def test_a_note_of_a_worker_goes_after_a_week_unless_it_lives_here(tmp_path: Path) -> None:
    notes = RemoteWorkerNotes(tmp_path, "ws://here")
    notes.save("lives", ["1"])
    notes.save("rebooted", ["1"])
    (folder,) = (tmp_path / "connected").iterdir()
    file = folder / "rebooted.json"
    file.write_text(file.read_text().replace("/", "/0", 1))
    (folder / "damaged.json").write_text("rubbish")
    remove_old_folders(tmp_path)
    assert len(list(folder.iterdir())) == 3
    assert notes.dead() == []

    old_ns = (wall_ms() - KEEP_MS - 60_000) * 1_000_000
    for each in folder.iterdir():
        os.utime(each, ns=(old_ns, old_ns))
    remove_old_folders(tmp_path)

    assert [each.name for each in folder.iterdir()] == ["lives.json"]
