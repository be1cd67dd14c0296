"""One virtual environment for each peer, with the newest versions of what it needs. They are kept and used again."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from peers.progress import log

ROOT = Path(__file__).resolve().parent.parent.parent
REPOSITORY = "REPOSITORY"
"""What an adapter writes among its packages for agentq as it stands here."""
SOURCES = ("coordinator/agentq", "worker/agentq", "cli/agentq")


class Venvs:
    """The environments in a cache folder, for one interpreter."""

    def __init__(self, cache: Path, python: str, *, refresh: bool = False) -> None:
        self._cache = cache
        self._python = python
        self._refresh = refresh
        tag = hashlib.sha256(os.path.realpath(python).encode()).hexdigest()[:8]
        self._folder = cache / f"venvs-{tag}"

    def make(self, name: str, packages: Sequence[str]) -> Path:
        """The folder of an environment; built anew if its packages are others, or the sources have changed."""
        venv = self._folder / name
        stamp = venv / "packages.json"
        want = json.dumps([self._python, list(packages), _sources() if REPOSITORY in packages else ""])
        if not self._refresh and stamp.exists() and stamp.read_text(encoding="utf-8") == want:
            return venv
        log("environment", name, *packages)
        shutil.rmtree(venv, ignore_errors=True)
        self._uv("venv", "--python", self._python, str(venv))
        install = ["pip", "install", "--compile-bytecode", "--python", str(venv / "bin" / "python")]
        if REPOSITORY in packages:
            install += ["--reinstall-package", "agentqueue"]  # or uv takes the wheel that it built last time
        self._uv(*install, *(str(ROOT) if package == REPOSITORY else package for package in packages))
        stamp.write_text(want, encoding="utf-8")
        return venv

    def _uv(self, command: str, *arguments: str) -> None:
        subprocess.run([_uv(self._cache), command, *arguments, "--quiet"], check=True)


def versions(venv: Path) -> dict[str, str]:
    """What is installed in an environment, by name."""
    code = (
        "import importlib.metadata as m, json;"
        "print(json.dumps({d.metadata['Name'].lower(): d.version for d in m.distributions()}))"
    )
    done = subprocess.run([str(venv / "bin" / "python"), "-c", code], capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _sources() -> str:
    """A word that is another one when a source of agentq has changed."""
    digest = hashlib.sha256()
    for path in (ROOT / "pyproject.toml", *_files()):
        digest.update(f"{path.relative_to(ROOT)}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _files() -> Iterator[Path]:
    for folder in SOURCES:
        yield from (path for path in sorted((ROOT / folder).rglob("*")) if path.is_file() and path.suffix != ".pyc")


def _uv(cache: Path) -> str:
    """uv, as it is installed or else in an environment of its own."""
    found = shutil.which("uv")
    if found:
        return found
    venv = cache / "uv"
    if not (venv / "bin" / "uv").exists():
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        subprocess.run([str(venv / "bin" / "python"), "-m", "pip", "install", "-q", "uv"], check=True)
    return str(venv / "bin" / "uv")
