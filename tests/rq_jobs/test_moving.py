"""The guide that moves an RQ project over, done as it says, step by step: nothing of it is left out here."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from rq_jobs.fleet import Fleet
from support.generated_docs import ROOT
from support.guide_pages import Follower

pytestmark = pytest.mark.full("an RQ project is moved with all its programs")

GUIDE = ROOT / "worker/agentq/worker/rq/MOVING.md"


@pytest.mark.timeout(300)
def test_an_rq_project_is_moved_over_step_by_step_and_back(fleet: Fleet, tmp_path: Path) -> None:
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    own = {"PATH": programs, "PYTHONPATH": str(tmp_path), "DEPLOY": str(ROOT / "deploy")}
    follower = Follower(tmp_path, fleet.environment | own)
    try:
        follower.follow(GUIDE.read_text(encoding="utf-8"))
    finally:
        fleet.processes += follower.processes.values()
