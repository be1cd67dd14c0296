"""Style that a machine can judge."""

# Over 400 lines: all rules of style, which share the list of files and their parsed trees.

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator
from functools import cache
from importlib.metadata import distribution, packages_distributions
from pathlib import Path

import pytest
from support.generated_docs import ROOT
from support.syntax_trees import parse_python

from agentq.coordinator.package_version import DISTRIBUTION_NAME, installed_version

LINES_A_FILE, LINES_UNEXPLAINED = 600, 400
LINES_A_FUNCTION = 60
ROOTS = ("coordinator", "worker", "cli")
LAYERS = {
    "coordinator": 0,
    "remote_worker": 1,
    "sdk": 1,
    "planning": 1,
    "testing": 2,
    "worker": 2,
    "server": 2,
    "dialects": 3,
    "bench": 3,
    "cli": 4,
}
"""The packages, each above those that it may import: any of a smaller number, and itself."""
COORDINATOR_ROOMS = {
    **dict.fromkeys(("bounds", "clock", "errors", "package_version", "token_context"), 0),
    "model": 1,
    **dict.fromkeys(("config", "log_setup", "schema_validation", "tracing"), 2),
    "storage": 3,
    "events": 4,
    "runs": 5,
    **dict.fromkeys(("queues", "schedules", "sessions", "webhooks", "workers"), 6),
    **dict.fromkeys(("plans", "security"), 7),
    **dict.fromkeys(("duties", "explain", "id_lookup", "public_json"), 8),
}
"""The folders and files of `agentq.coordinator`, each above those that it may import: any of a smaller number."""
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


@cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    """Every node of a module's tree; the first is the module."""
    return list(ast.walk(parse_python(text_of(path))))


def offenders(paths: Iterable[Path], judge: Callable[[Path], Iterable[object]]) -> list[str]:
    """What a rule has against each file, a line each."""
    return [f"{shown(path)}: {complaint}" for path in paths for complaint in judge(path)]


def test_a_file_holds_one_concept() -> None:
    """Over 400 lines it says in a comment why it is one concept all the same."""

    def too_long(path: Path) -> Iterator[str]:
        explained = re.search(r"^(#|--) Over 400 lines: ", text_of(path), re.MULTILINE)
        if (lines := len(text_of(path).splitlines())) > (LINES_A_FILE if explained else LINES_UNEXPLAINED):
            yield f"{lines} lines"

    assert offenders(tracked(".py", ".lua"), too_long) == []


def test_a_function_fits_on_a_screen() -> None:
    def too_long(path: Path) -> Iterator[str]:
        for node in nodes_of(path):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
                lines = node.end_lineno - node.lineno + 1
                if lines > LINES_A_FUNCTION:
                    yield f"{node.name} has {lines} lines"

    assert offenders(PYTHON, too_long) == []


def test_a_file_is_named_by_its_concept_and_says_what_it_is_for() -> None:
    def nameless(path: Path) -> Iterator[str]:
        if path.stem in BANNED_NAMES:
            yield "the name says nothing"
        if not re.match(r'(#.*\n)*r?"""\S', text_of(path)):
            yield "no docstring"

    assert offenders(PYTHON, nameless) == []


RETIRED_WORDS = set(
    re.findall(
        "[a-z]+",
        "hands seat seats offering fitting pulse narration tale doings tidings told tell said door errands chores "
        "furnishing afar embassy lobby roster shelf foreign tides currents whoever nobody",
    )
)
"""Words that the glossary of the design has replaced: by slot, heartbeat, report, worktree, backend, dialect, hub …"""


def test_each_public_class_has_a_name_of_its_own() -> None:
    classes = [node for path in PRODUCT for node in nodes_of(path) if isinstance(node, ast.ClassDef)]
    names = Counter(node.name for node in classes if not node.name.startswith("_"))

    assert [name for name, times in names.items() if times > 1] == []


def test_no_file_class_or_function_is_named_by_a_retired_word() -> None:
    def retired(path: Path) -> Iterator[str]:
        kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        names = [path.stem, *(node.name for node in nodes_of(path) if isinstance(node, kinds))]
        yield from (name for name in names if RETIRED_WORDS & {w.lower() for w in re.findall("[A-Z]?[a-z]+", name)})

    assert offenders(PRODUCT, retired) == []


def test_imports_point_one_way() -> None:
    def against_the_layers(path: Path) -> Iterator[str]:
        own = path.relative_to(ROOT).parts[2]
        for name in imported(path):
            if name.startswith("agentq."):
                layer = name.split(".")[1]
                if layer != own and LAYERS[layer] >= LAYERS[own]:
                    yield f"imports {name}"

    assert offenders(PRODUCT, against_the_layers) == []


def test_imports_within_the_coordinator_point_one_way() -> None:
    """From the model to storage, to runs, to what is made of runs, to the duties; deferred and type imports count."""
    above = ROOT / "coordinator/agentq/coordinator"
    modules = {module_name(path): path for path in PRODUCT if path.is_relative_to(above)}
    rooms = {name: name.split(".")[2] for name in modules if name.count(".") > 1}

    def against_the_rooms(name: str) -> Iterator[str]:
        for other in imported_modules(modules[name], rooms.keys()):
            own, room = rooms[name], rooms[other]
            if own != room and COORDINATOR_ROOMS[room] >= COORDINATOR_ROOMS[own]:
                yield f"{name} imports {other}"

    assert set(rooms.values()) == set(COORDINATOR_ROOMS)
    assert [complaint for name in rooms for complaint in against_the_rooms(name)] == []


def test_there_is_no_circle_of_imports() -> None:
    """Imports within functions and those for types count: they hide a circle, and do not break it."""
    modules = {module_name(path): path for path in PRODUCT if path.relative_to(ROOT).parts[1] == "agentq"}
    graph = {name: imported_modules(path, modules.keys()) - {name} for name, path in modules.items()}
    circles = [group for group in strongly_connected(graph) if len(group) > 1]

    assert [sorted(group) for group in circles] == []


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts[1:]).removesuffix(".__init__")


def imported_modules(path: Path, modules: Collection[str]) -> set[str]:
    """Those of these modules that a file imports; of `from package import name` that module, if it is one."""
    nodes = [node for node in nodes_of(path) if isinstance(node, ast.ImportFrom) and node.module]
    names = [(node.module or "", alias.name) for node in nodes for alias in node.names]
    plain = {alias.name for node in nodes_of(path) if isinstance(node, ast.Import) for alias in node.names}
    of_packages = {whole if (whole := f"{package}.{name}") in modules else package for package, name in names}
    return {each for each in plain | of_packages if each in modules}


def strongly_connected(graph: dict[str, set[str]]) -> Iterator[set[str]]:
    """Groups of nodes that can all reach one another."""
    reached = {name: reachable(graph, name) for name in graph}
    left = set(graph)
    while left:
        name = left.pop()
        group = {name} | {each for each in reached[name] if name in reached[each]}
        left -= group
        yield group


def reachable(graph: dict[str, set[str]], start: str) -> set[str]:
    found: set[str] = set()
    todo = [start]
    while todo:
        new = graph[todo.pop()] - found
        found |= new
        todo += new
    return found


def imported(path: Path) -> set[str]:
    return {name for node in nodes_of(path) for name in imports_of(node)}


def imports_of(node: ast.AST) -> set[str]:
    if isinstance(node, ast.ImportFrom) and node.module and not node.level:
        return {node.module}
    return {alias.name for alias in node.names} if isinstance(node, ast.Import) else set()


def words_in(words: Iterable[str], apart_from: Container[str] = ()) -> Callable[[Path], Iterator[str]]:
    """The rule that a file must not have these words, unless it is one of a few by name."""
    return lambda path: (word for word in words if path.name not in apart_from and word in text_of(path))


def test_only_clock_reads_a_clock() -> None:
    clocks = ("time.time", "time.monotonic", "datetime.now", "perf_counter")
    those_that_may = ("clock.py", "bench.py", "throughput.py", "worker_throughput.py")

    assert offenders(PRODUCT, words_in(clocks, apart_from=those_that_may)) == []


def test_no_script_hides_the_base_of_its_keys() -> None:
    """Every script begins with `local base`; a name that hides it is met only where a key is built below."""
    hidden = re.compile(r"local (?:\w+, *)*base\b|function[^(\n]*\((?:\w+, *)*base\b")

    assert offenders(tracked(".lua"), lambda path: hidden.findall(text_of(path))) == []


def test_only_keys_builds_keys() -> None:
    assert offenders(PRODUCT, words_in(["agentq:{"], apart_from=("keys.py", "throughput.py"))) == []


def test_a_script_builds_no_key_and_reads_no_argument_by_number() -> None:
    """Only the prelude reads the first argument, which is now_ms and the token that asks."""

    def by_number(path: Path) -> Iterator[str]:
        body = text_of(path).partition("]]")[2]
        body = body.replace("ARGV[1]", "") if path.name == "prelude.lua" else body
        yield from (word for word in ("agentq:", "KEYS[", "ARGV[") if word in body)

    assert offenders(tracked(".lua"), by_number) == []


def test_nothing_is_left_for_later() -> None:
    assert offenders([*PRODUCT, *tracked(".lua", ".sh")], words_in(BANNED_WORDS)) == []


def test_each_promise_has_a_test_in_the_default_lane_that_tries_to_break_it() -> None:
    def of(node: ast.AST) -> set[str]:
        marks = "\n".join(ast.unparse(mark) for mark in getattr(node, "decorator_list", ()))
        in_full_lane = re.search(r"^pytest\.mark\.(full|needs)\b", marks, re.MULTILINE)
        return set() if in_full_lane else set(re.findall(r"P\d+", " ".join(re.findall(r"mark\.promise(.*)", marks))))

    marked = [path for path in PYTHON if "@pytest.mark.promise(" in text_of(path)]
    tried = {promise for path in marked for node in nodes_of(path) for promise in of(node)}

    assert tried == set(re.findall(r"^\| (P\d+) ", text_of(ROOT / "README.md"), re.MULTILINE))


def test_each_file_of_tests_has_a_name_of_its_own() -> None:
    """Two of the same name could not be run together."""
    names = [path.name for path in PYTHON if path.name.startswith("test_")]

    assert [name for name, times in Counter(names).items() if times > 1] == []


def test_agentq_is_a_namespace_package() -> None:
    """With an agentq/__init__.py, the first of the three folders on the path would hide the other two."""
    assert [shown(path) for path in PYTHON if path.match("*/agentq/__init__.py")] == []
    for layer in LAYERS:
        assert [root for root in ROOTS if (ROOT / root / "agentq" / layer / "py.typed").exists()], layer


INSTALLS_FROM_THE_INDEX = re.compile(
    r"(?:\bpip[\d.]*['\",\s]+(?:install|download|wheel)|\bpipx\s+(?:install|run|inject)|\buvx|\buv\s+(?:add|tool\s+\w+)"
    r"|\b(?:poetry|pdm|rye|hatch)\s+add|--(?:with|from))\b((?:\\\n|[^\n`|;&#])*)"
)
OUR_NAME = re.compile(r"(?:^|(?<=[\s'\",=]))agentq(?:ueue)?(?=$|[\s'\",.)\[=<>~!])")
"""Another project owns `agentq` on the index, and `agentqueue` is not published."""


def installed_by_name(path: Path) -> Iterator[str]:
    text = text_of(path)
    for found in INSTALLS_FROM_THE_INDEX.finditer(text):
        if OUR_NAME.search(found[1]):
            yield f"line {text.count(chr(10), 0, found.start()) + 1}: {found[0]}"


def test_nothing_says_to_install_agentq_by_its_name() -> None:
    """The index has it from somebody else. A clone or a wheel is named by its path: `pip install '/path/to/clone'`."""
    listed = [path for path in tracked("") if b"\0" not in path.read_bytes()[:1024]]

    assert offenders(listed, installed_by_name) == []


INSTALLS = (
    "pip install {}",
    "pip3 install -U '{}[testing]'",
    "python -m pip install --upgrade {}",
    "pipx install {}",
    "uv add {}",
    "uvx {} doctor",
    "uv tool install {}",
    "uv tool run {}",
    "uv pip install \\\n    '{}[otel]>=0.1'",
    '["pip", "install", "{}"]',
    "uv run --with {} pytest",
)


@pytest.mark.parametrize("command", INSTALLS)
def test_every_way_to_install_by_name_is_found(command: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Install\n\n`{command.format('agent' + 'q')}`\n")

    assert {found[:7] for found in installed_by_name(page)} == {"line 3:"}


ALLOWED = ("pip install '/path/to/{}[otel]'", "uv tool install ./dist/{}-0.1.0-py3-none-any.whl", "uv run {} demo")


@pytest.mark.parametrize("command", ALLOWED)
def test_an_install_by_path_is_allowed(command: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(command.format("agent" + "q"))

    assert list(installed_by_name(page)) == []


def normal(requirement: str) -> str:
    """The name of the distribution that a requirement asks for, as packaging compares names."""
    (name,) = re.findall(r"^[\w.-]+", requirement)
    return re.sub(r"[-_.]+", "-", name).lower()


def test_what_the_product_imports_is_declared() -> None:
    """An import inside a function may be of an extra; pytest is there already when it loads our plugin."""
    project = tomllib.loads(text_of(ROOT / "pyproject.toml"))["project"]
    always = {normal(each) for each in project["dependencies"]}
    extras = {normal(each) for extra in project["optional-dependencies"].values() for each in extra}
    distributions = packages_distributions()

    def undeclared(path: Path) -> Iterator[str]:
        (module, *_) = nodes_of(path)
        assert isinstance(module, ast.Module)
        at_once = set[str]().union(*map(imports_of, module.body))
        for name in sorted(imported(path)):
            declared = always if name in at_once else always | extras
            package = name.partition(".")[0]
            if package in {"agentq", *sys.stdlib_module_names} or (path.stem, package) == ("pytest_plugin", "pytest"):
                continue
            if declared.isdisjoint(map(normal, distributions.get(package, ()))):
                yield f"imports {name}"

    assert offenders(PRODUCT, undeclared) == []


def test_both_commands_are_one_program_of_our_distribution() -> None:
    commands = distribution(DISTRIBUTION_NAME).entry_points.select(group="console_scripts")
    named = {(each.name, each.value) for each in commands}

    assert named == {("agentq", "agentq.cli.entry:app"), ("agentqueue", "agentq.cli.entry:app")}
    assert installed_version() == tomllib.loads(text_of(ROOT / "pyproject.toml"))["project"]["version"]


def test_every_requirement_has_a_tested_version() -> None:
    project = tomllib.loads(text_of(ROOT / "pyproject.toml"))
    pinned = {normal(line) for line in text_of(ROOT / "constraints.txt").splitlines()}
    groups = [project["project"]["dependencies"], *project["project"]["optional-dependencies"].values()]
    required = {normal(each) for group in (*groups, project["dependency-groups"]["dev"]) for each in group}

    assert sorted(required - pinned) == []
    assert project["tool"]["uv"]["constraint-dependencies"] == sorted(text_of(ROOT / "constraints.txt").split())


@pytest.mark.full("builds the wheel")
def test_the_wheel_works_without_the_sources(tmp_path: Path) -> None:
    """Built, unpacked elsewhere, and run from there: nothing is missing from it, no script and no marker."""
    built = subprocess.run(
        ["uv", "build", "--wheel", "--quiet", "--out-dir", str(tmp_path), str(ROOT)], capture_output=True, text=True
    )
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    subprocess.run([sys.executable, "-m", "zipfile", "-e", str(wheel), str(tmp_path / "site")], check=True)
    program = (
        "import agentq.coordinator.storage.scripts as s, agentq.cli.main; print(s.__file__, len(s.SCRIPTS))\n"
        "from agentq.worker.agents.profiles.registry import ProfileRegistry; ProfileRegistry.load({}).get('claude')"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site"), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, cwd=tmp_path
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(tmp_path))
    assert all((tmp_path / "site" / "agentq" / layer / "py.typed").exists() for layer in LAYERS)
