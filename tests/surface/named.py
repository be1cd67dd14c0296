"""Modules that are named by strings, and variables of the environment: what no import and no type checker would miss.

A name that is changed in one place and not in the other moves, in the file of modules, from those that lead somewhere
to those that do not.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from support.generated_docs import ROOT
from support.syntax_trees import parse_python
from surface.parts import titled

PRODUCT = ("coordinator", "worker", "cli", "deploy", "examples")
READ = {".py", ".toml", ".md", ".lua", ".service", ".timer", ".yaml", ".conf", ".env", ".sh", ""}
MODULE = re.compile(r"(?<![\w./-])agentq(?:\.(?:[a-z_][\w]*|\{…\}))+(?::\w+)?(?![\w/-])", re.IGNORECASE)
IMPORT = re.compile(r"^ *(?:from|import) agentq[\w.]*", re.MULTILINE)
"""What most files have; it takes a second to look through those that name nothing otherwise."""
RUN_AS_PROGRAM = re.compile(r"-m (agentq(?:\.\w+)+)")
VARIABLE = re.compile(r"(?<![A-Za-z0-9_])_?AGENTQ_[A-Z0-9_]*[A-Z0-9]\b")
CRON = "deploy/rq_cron.py"
RESOLVE = """
import contextlib, io, json, pkgutil, runpy, sys
found = {}
for name in json.load(sys.stdin):
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            thing = pkgutil.resolve_name(name)
            is_module = type(thing).__name__ == "module"
            # A folder that git has emptied and Python's cache has not is no module of ours.
            found[name] = "name" if not is_module else "module" if getattr(thing, "__file__", None) else ""
        except (ImportError, AttributeError):
            found[name] = ""
file = runpy.run_path(sys.argv[1])
jobs = [f"{each.__module__}.{each.__name__}" for each in file.values() if hasattr(each, "__code__")]
json.dump({"found": found, "jobs": sorted(jobs), "queue": file["QUEUE"]}, sys.stdout)
"""


@cache
def texts() -> list[tuple[Path, str]]:
    """The files of the product that name things."""
    paths = [path for folder in PRODUCT for path in sorted((ROOT / folder).rglob("*")) if path.suffix in READ]
    paths += [ROOT / "README.md", ROOT / "pyproject.toml"]
    return [(path, path.read_text(encoding="utf-8")) for path in paths if path.is_file()]


def strings(tree: ast.AST) -> Iterator[str]:
    """Every string of a module, in which what is put in at run time is an ellipsis; `-m` and what follows it as one."""
    parts = set[int]()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts |= {id(part) for part in node.values}
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{…}" for part in node.values)
        elif isinstance(node, ast.List | ast.Tuple):
            words = [str(each.value) if isinstance(each, ast.Constant) else "" for each in node.elts]
            yield from (f"-m {name}" for flag, name in pairwise(words) if flag == "-m")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            yield node.value


def said() -> Iterator[str]:
    for path, text in texts():
        if path.suffix == ".py":
            yield from strings(parse_python(text)) if MODULE.search(IMPORT.sub("", text)) else ()
        else:
            yield text.replace('"-m", "', "-m ")


def modules() -> Iterator[str]:
    """Every dotted name of ours in a string, a document or a settings file, by whether it leads somewhere."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    groups = {"console_scripts": project["scripts"], **project["entry-points"]}
    points = [f"{group}: {name} = {value}" for group, found in groups.items() for name, value in found.items()]
    words = list(said())
    programs = {name for text in words for name in RUN_AS_PROGRAM.findall(text)}
    names = {name for text in words for name in MODULE.findall(text)} - {"agentq.toml"}
    names |= {value for found in groups.values() for value in found.values()}
    whole = {name for name in names if "{…}" not in name}
    told = resolved(whole | {f"{name}.__main__" for name in programs})
    leads = told["found"]
    runs = {name for name in programs if leads[name] and (leads[f"{name}.__main__"] or not is_package(name))}
    yield from titled("entry points", sorted(points))
    yield from titled(f"jobs of {CRON}, in the queue {told['queue']}", told["jobs"])
    yield from titled("programs", sorted(runs))
    yield from titled("programs that are not there", sorted(programs - runs))
    yield from titled("modules and names in them", sorted(name for name in whole if leads[name]))
    yield from titled("names of other things, such as loggers", sorted(name for name in whole if not leads[name]))
    yield from titled("completed at run time", sorted(names - whole))


def is_package(name: str) -> bool:
    return any((ROOT / root / name.replace(".", "/")).is_dir() for root in ("coordinator", "worker", "cli"))


def resolved(names: Iterable[str]) -> Any:
    """Import each in a process of its own: some of them do something to the process that they are imported in."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("AGENTQ_")}
    argv = [sys.executable, "-c", RESOLVE, str(ROOT / CRON)]
    done = subprocess.run(argv, input=json.dumps(sorted(names)), env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def variables() -> Iterator[str]:
    """Every variable of the environment that is named anywhere in the product."""
    return iter(sorted({name for _, text in texts() for name in VARIABLE.findall(text)}))
