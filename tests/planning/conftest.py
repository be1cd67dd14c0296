"""Plans in a folder of the test's own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from agentq.planning.compiler import CompiledPlan, compile_plan
from agentq.planning.expand.expander import expand_plan
from agentq.planning.repository import PlanRepository

SITE = PlanRepository("/repository", True, "main", "agentq/plan")
Plan = Callable[..., CompiledPlan]


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """Compiles a plan from text; `files` are written beside it."""
    monkeypatch.chdir(tmp_path)

    def read(text: str, *, name: str = "plan.yaml", site: PlanRepository | None = None, **more: Any) -> CompiledPlan:
        for other, body in more.pop("files", {}).items():
            (tmp_path / other).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / other).write_text(dedent(body))
        Path(name).write_text(dedent(text))
        return compile_plan(expand_plan(name, more.pop("given", {})), "plan-1", site)

    return read
