"""Style that a machine can judge."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from docs import ROOT

LINES_A_FILE = 400
LINES_A_FUNCTION = 60
ROOTS = ("coordinator", "worker", "cli")
LAYERS = {"coordinator": 0, "sdk": 1, "planning": 1, "testing": 2, "worker": 2, "cli": 3}
"""The packages, each above those that it may import: any of a smaller number, and itself."""
BANNED_NAMES = {"util", "utils", "common", "helper", "helpers", "misc", "base", "core", "shared"}
BANNED_WORDS = ("coming soon", "TODO", "FIXME", "XXX", "NotImplementedError")


def tracked(*suffixes: str) -> list[Path]:
    """Files of the repository; in an unpacked source archive, all that stand there."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    names = listed.stdout.splitlines() or [str(path.relative_to(ROOT)) for path in ROOT.rglob("*") if path.is_file()]
    return sorted(ROOT / name for name in names if name.endswith(suffixes) and (ROOT / name).exists())


PYTHON = tracked(".py")
PRODUCT = [path for path in PYTHON if path.relative_to(ROOT).parts[0] in ROOTS]


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", tracked(".py", ".lua"), ids=shown)
def test_a_file_holds_one_concept(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LINES_A_FILE


@pytest.mark.parametrize("path", PYTHON, ids=shown)
def test_a_function_fits_on_a_screen(path: Path) -> None:
    long = [
        f"{node.name} ({node.end_lineno - node.lineno + 1} lines)"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno + 1 > LINES_A_FUNCTION
    ]

    assert long == []


@pytest.mark.parametrize("path", PYTHON, ids=shown)
def test_a_file_is_named_by_its_concept_and_says_what_it_is_for(path: Path) -> None:
    assert path.stem not in BANNED_NAMES
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), "a module opens with what it is for"


@pytest.mark.parametrize("path", PRODUCT, ids=shown)
def test_imports_point_one_way(path: Path) -> None:
    own = path.relative_to(ROOT).parts[2]
    for name in imported(path):
        if name.startswith("agentq."):
            layer = name.split(".")[1]
            assert layer == own or LAYERS[layer] < LAYERS[own], f"{shown(path)} imports {name}"


def imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return names


@pytest.mark.parametrize("path", PRODUCT, ids=shown)
def test_only_clock_reads_a_clock(path: Path) -> None:
    if path.name in ("clock.py", "bench.py"):
        return
    text = path.read_text(encoding="utf-8")
    assert not any(word in text for word in ("time.time", "time.monotonic", "datetime.now", "perf_counter"))


@pytest.mark.parametrize("path", PRODUCT, ids=shown)
def test_only_keys_builds_keys(path: Path) -> None:
    if path.name in ("keys.py", "bench.py"):
        return
    assert "agentq:{" not in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", tracked(".lua"), ids=shown)
def test_a_script_builds_no_key_and_reads_no_argument_by_number(path: Path) -> None:
    body = path.read_text(encoding="utf-8").partition("]]")[2]

    assert "agentq:" not in body
    assert "KEYS[" not in body
    assert "ARGV[" not in body.replace("tonumber(ARGV[1])", ""), "only the prelude reads now_ms"


@pytest.mark.parametrize("path", [*PRODUCT, *tracked(".lua", ".sh")], ids=shown)
def test_nothing_is_left_for_later(path: Path) -> None:
    text = path.read_text(encoding="utf-8")

    assert [word for word in BANNED_WORDS if word in text] == []


def test_each_file_of_tests_has_a_name_of_its_own() -> None:
    """Two of the same name could not be run together."""
    names = [path.name for path in PYTHON if path.name.startswith("test_")]

    assert [name for name, times in Counter(names).items() if times > 1] == []


def test_agentq_is_a_namespace_package() -> None:
    """With an agentq/__init__.py, the first of the three folders on the path would hide the other two."""
    assert [shown(path) for path in PYTHON if path.match("*/agentq/__init__.py")] == []
    for layer in LAYERS:
        assert [root for root in ROOTS if (ROOT / root / "agentq" / layer / "py.typed").exists()], layer


def test_the_wheel_works_without_the_sources(tmp_path: Path) -> None:
    """Built, unpacked elsewhere, and run from there: nothing is missing from it, no script and no marker."""
    built = subprocess.run(
        ["uv", "build", "--wheel", "--quiet", "--out-dir", str(tmp_path), str(ROOT)], capture_output=True, text=True
    )
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    subprocess.run([sys.executable, "-m", "zipfile", "-e", str(wheel), str(tmp_path / "site")], check=True)
    program = (
        "import agentq.coordinator.scripts as s, agentq.cli.main; print(s.__file__, len(s.SCRIPTS))\n"
        "from agentq.worker.agents.profiles import Profiles; Profiles.found({}).get('claude')"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site"), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, cwd=tmp_path
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(tmp_path))
    assert all((tmp_path / "site" / "agentq" / layer / "py.typed").exists() for layer in LAYERS)
