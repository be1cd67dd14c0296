"""Runs the tests of this folder that need a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from living import hear_hangups
from solitude import ALONE, FILES

HERE = Path(__file__).parent


@pytest.mark.parametrize("name", FILES)
def test_processes_are_started_watched_and_ended(name: str) -> None:
    argv = [sys.executable, "-m", "pytest", "-n", "0", "-q", "-x", "-p", "no:cacheprovider", str(HERE / name)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        argv,
        env={**environment, ALONE: "1"},
        cwd=HERE.parent.parent,
        preexec_fn=hear_hangups,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout[-20_000:]
