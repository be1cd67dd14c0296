"""Follows the guide that moves an installation of the other coordinator, step by step."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from support.generated_docs import ROOT
from support.guide_pages import Follower
from support.servers import Server, free_port

GUIDE = ROOT / "coordinator/agentq/dialects/agent_orchestrator/MOVING.md"


@pytest.mark.full("an installation is moved with all its programs")
@pytest.mark.timeout(300)
def test_an_installation_is_moved_over_step_by_step_and_back(valkey: Server, tmp_path: Path) -> None:
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    port = str(free_port())
    own = {
        "PATH": programs,
        "EXAMPLES": str(ROOT / "examples"),
        "AGENTQ_URL": valkey.url,
        "AGENTQ_NAMESPACE": f"moving-{port}",
        "AGENTQ_HOME": str(tmp_path / "home"),
    }
    # The example has the port of its installation; here any other may have that.
    commands = GUIDE.read_text(encoding="utf-8").replace("127.0.0.1:8765", f"127.0.0.1:{port}")
    commands = commands.replace("agentq serve ", f"agentq serve --port {port} ")
    follower = Follower(tmp_path, {**os.environ, **own})
    try:
        follower.follow(commands)
    finally:
        follower.close()
