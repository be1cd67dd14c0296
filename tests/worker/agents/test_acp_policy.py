"""What an agent may do when it asks."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from agentq.worker.agents.acp.permissions import find_refusal


@pytest.mark.parametrize("kind", ["read", "search", "think"])
@pytest.mark.parametrize("permissions", ["read", "edit", "full"])
def test_whoever_may_read_may_look_anywhere(
    permissions: Literal["read", "edit", "full"], kind: str, tmp_path: Path
) -> None:
    assert find_refusal(permissions, kind, ["/etc/hosts"], tmp_path) is None


@pytest.mark.parametrize("kind", ["edit", "delete", "move", "execute", "fetch", "switch_mode", "other", "unheard-of"])
def test_whoever_may_only_read_changes_and_starts_nothing(kind: str, tmp_path: Path) -> None:
    assert find_refusal("read", kind, ["a.py"], tmp_path)
    assert find_refusal("full", kind, ["a.py"], tmp_path) is None


@pytest.mark.parametrize("kind", ["edit", "delete", "move"])
def test_whoever_may_edit_changes_files_within_the_folder(kind: str, tmp_path: Path) -> None:
    inside = ["a.py", "new/deep/a.py", "new/../a.py", str(tmp_path / "a.py"), ".gitignore"]

    assert find_refusal("edit", kind, inside, tmp_path) is None


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("../outside.py", "not in the run's folder"),
        ("/etc/passwd", "not in the run's folder"),
        ("link/a.py", "not in the run's folder"),
        ("{sibling}", "not in the run's folder"),
        (".git/hooks/post-commit", "belongs to git"),
        ("sub/.git/config", "belongs to git"),
        ("circle", "cannot be known"),
        ("nul\0", "cannot be known"),
    ],
)
def test_whoever_may_edit_changes_nothing_elsewhere(path: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/tmp")
    (tmp_path / "circle").symlink_to("circle")
    path = path.format(sibling=f"{tmp_path}-sibling/a.py")

    assert why in (find_refusal("edit", "edit", ["a.py", path], tmp_path) or "")


@pytest.mark.parametrize("kind", ["execute", "fetch", "switch_mode", "other", "unheard-of"])
def test_whoever_may_edit_does_nothing_else(kind: str, tmp_path: Path) -> None:
    assert find_refusal("edit", kind, ["a.py"], tmp_path)


def test_a_change_of_no_file_is_refused(tmp_path: Path) -> None:
    assert find_refusal("edit", "edit", [], tmp_path) == "it does not say which file it would change"
