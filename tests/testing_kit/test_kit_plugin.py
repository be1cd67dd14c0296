"""The pytest plug-in, as loaded in every environment with agentq."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest

from agentq.coordinator.package_version import DISTRIBUTION_NAME

USE = """
from agentq.sdk import task
from agentq.testing import assert_submitted

@task
def double(number: int) -> int:
    return 2 * number

def test_it(agentq_worker):
    run = double.submit(4)
    assert_submitted(double, (4,))
    agentq_worker.run_all()
    assert run.result() == 8
"""

LIGHT = """
import sys

def test_nothing_of_agentq_is_imported():
    heavy = {"pydantic", "redis", "fakeredis", "agentq.sdk", "agentq.testing.memory_queue", "agentq.coordinator"}
    assert heavy & sys.modules.keys() == set()
"""


def pytest_of(folder: Path, text: str, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_mine.py").write_text(text)
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", *options]
    return subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)


def test_the_plugin_is_registered() -> None:
    plugins = distribution(DISTRIBUTION_NAME).entry_points.select(group="pytest11")

    assert [(each.name, each.value) for each in plugins] == [("agentq", "agentq.testing.pytest_plugin")]


@pytest.mark.full("takes 3 s")
def test_the_fixtures_are_there_without_an_import(tmp_path: Path) -> None:
    done = pytest_of(tmp_path, USE)

    assert done.returncode == 0, done.stdout


@pytest.mark.full("takes 2 s")
def test_a_pytest_that_uses_none_of_it_imports_none_of_it(tmp_path: Path) -> None:
    done = pytest_of(tmp_path, LIGHT)

    assert done.returncode == 0, done.stdout


@pytest.mark.full("takes 2 s")
def test_without_fakeredis_it_says_the_one_command_that_adds_it(tmp_path: Path) -> None:
    hide = (
        "import sys\nfrom importlib import abc\nclass Hide(abc.MetaPathFinder):\n    def find_spec(self, name, *_):\n"
    )
    hide += "        if name == 'fakeredis': raise ModuleNotFoundError(name)\nsys.meta_path.insert(0, Hide())\n"

    done = pytest_of(tmp_path, hide + USE)

    assert done.returncode == 1
    assert "pip install 'fakeredis[lua]'" in done.stdout
