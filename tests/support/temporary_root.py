"""A temporary folder for each run of the suite, and none in common with another.

pytest numbers the folders of its runs below one root and clears old ones away at the end of each. Of two runs at once,
one then meets a folder that the other is removing, and fails after its last test. The folder is kept if a test failed.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

import pytest

ROOT = pytest.StashKey[Path]()


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput") or config.option.basetemp is not None:
        return
    root = config.stash[ROOT] = Path(tempfile.mkdtemp(prefix="aqtest"))
    config.option.basetemp = str(root / "t")
    os.environ["PYTEST_DEBUG_TEMPROOT"] = str(root)  # for each pytest that a test starts


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    root = session.config.stash.get(ROOT, None)
    if root is not None and exitstatus == pytest.ExitCode.OK:
        subprocess.run(["rm", "-rf", root], check=False)  # rmtree meets its limit of recursion in the deepest folders
