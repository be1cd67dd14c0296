"""The faults of a plan are told all at once, so that nobody mends one to learn of the next."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentq.coordinator.errors import Invalid
from agentq.planning.expand.expander import expand_plan


def test_all_that_is_wrong_with_ids_and_needs_is_told_at_once(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(
        """
tasks:
- {id: a, command: "true", needs: [b]}
- {id: b, command: "true", needs: [a]}
- {id: a, command: "true"}
- {id: c, command: "true", needs: [nowhere, broken]}
- {id: broken, command: "true", promt: x}
"""
    )

    with pytest.raises(Invalid) as told:
        expand_plan(str(path))

    said = str(told.value)
    assert "the id 'a' is taken" in said
    assert "these tasks wait for each other: a → b → a" in said
    assert "there is no task 'nowhere'" in said
    assert "there is no key 'promt'" in said
    assert "there is no task 'broken'" not in said


def test_the_needs_of_a_task_with_another_fault_are_looked_up_too(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(
        """
tasks:
- {id: a, command: "true", needs: [c]}
- {id: b, comand: "true", needs: [a, nowhere]}
- {id: c, command: "true", timeout: soon, needs: [a]}
"""
    )

    with pytest.raises(Invalid) as told:
        expand_plan(str(path))

    said = str(told.value)
    assert "there is no key 'comand'" in said
    assert f"{path}:4" in said
    assert "there is no task 'nowhere'" in said
    assert "these tasks wait for each other: a → c → a" in said
