"""Runs the tests of this folder that need a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.lanes import is_full
from support.own_process import ALONE, FILES

HERE = Path(__file__).parent
EVERY_TIME = ("test_process.py", "test_tree.py")
LATER = pytest.mark.full("a file of tests in a process of its own")


@pytest.mark.slow("a file of tests in a process of its own")
@pytest.mark.parametrize("name", [name if name in EVERY_TIME else pytest.param(name, marks=LATER) for name in FILES])
def test_processes_are_started_watched_and_ended(name: str, pytestconfig: pytest.Config) -> None:
    lane = ["--full"] if is_full(pytestconfig) else []
    argv = [sys.executable, "-m", "pytest", "-n", "0", "-q", "-p", "no:cacheprovider", *lane, str(HERE / name)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        argv,
        env={**environment, ALONE: "1"},
        cwd=HERE.parent.parent,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout[-20_000:]
