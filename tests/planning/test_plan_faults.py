"""All faults of a plan are reported at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from planning.conftest import Plan

from agentq.cli.plans.plan_options import check_plan
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
- {id: twice, command: "true", timeout: soon}
- {id: twice, command: "true"}
- {id: broken, command: "true", promt: x}
"""
    )

    with pytest.raises(Invalid) as told:
        expand_plan(str(path))

    said = str(told.value)
    assert "the id 'a' is taken" in said
    assert "the id 'twice' is taken" in said
    assert "these tasks wait for each other: a → b → a" in said
    assert "there is no task 'nowhere'" in said
    assert "there is no key 'promt'" in said
    assert "there is no task 'broken'" not in said


def test_a_cycle_hides_no_fault_of_what_tasks_run(plan: Plan) -> None:
    with pytest.raises(Invalid) as told:
        plan(
            """
            tasks:
            - {id: a, command: "true", needs: [b]}
            - {id: b, command: [cat, "{{ tasks.d.result }}"], needs: [a]}
            - {id: c, command: [cat, "{{ tasks.d.result }}"], needs: [nowhere]}
            - {id: d, command: [cat, "{{ tasks.a.nothing }}"], check: "true"}
            """
        )

    assert [line.split(": ")[1] for line in str(told.value).splitlines()] == [
        "tasks[0].needs", "tasks[1].command", "tasks[2].needs[0]", "tasks[3].command", "tasks[3].check",
    ]  # fmt: skip


def test_validate_tells_the_faults_of_sound_tasks_beside_broken_ones(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(
        """
tasks:
- {id: broken, command: "true", promt: x, needs: [early]}
- {id: early, command: [cat, "{{ tasks.nowhere.result }}"]}
- {id: late, command: [cat, "{{ tasks.early.result }}"], needs: [broken]}
- {id: lost, command: [cat, "{{ tasks.late.result }}"]}
- {id: checked, command: "true", check: "true"}
"""
    )

    with pytest.raises(Invalid) as told:
        check_plan(str(path), ())

    assert [line.split(": ")[1] for line in str(told.value).splitlines()] == [
        "tasks[0].promt", "tasks[1].command", "tasks[3].command", "tasks[4].check",
    ]  # fmt: skip


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
