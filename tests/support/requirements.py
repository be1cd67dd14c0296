"""What the full lane needs beside PyPI: whether it is here, and how to get it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from support.servers import redis_binary, valkey_binary

from agentq.worker.process.cgroups import Cgroups

AGENTS = ("claude", "codex", "gemini", "opencode")
INSTALLED = Path(__file__).parents[2] / ".agents/node_modules"
FAKETIME = "faketime/libfaketime.so.1"
FAKETIME_FOLDERS = ("/usr/lib", "/usr/lib64", "/usr/local/lib", "/opt/homebrew/lib")


class Requirement(NamedTuple):
    """Something that the full lane needs."""

    is_met: Callable[[], object]
    remedy: str
    in_ci: bool = True
    """Whether every CI machine can have it."""


def faketime() -> str | None:
    """The library that shows a program another wall clock."""
    found = (
        path for folder in FAKETIME_FOLDERS for depth in ("", "*/") for path in Path(folder).glob(depth + FAKETIME)
    )
    return next((str(path) for path in found), None)


def agent_programs() -> Path | None:
    """The folder that has all the real agents, to be put on a PATH; None where one is missing."""
    folder = Path(os.environ.get("AGENTQ_TEST_AGENTS") or INSTALLED) / ".bin"
    return folder.resolve() if all((folder / name).exists() for name in AGENTS) else None


def is_root() -> bool:
    return os.geteuid() == 0


def unshared() -> list[str]:
    """A command in namespaces of its own; a user other than root becomes root of a user namespace."""
    return ["unshare", "--net", "--mount", *([] if is_root() else ["--map-root-user"]), "--"]


def namespaces_can_be_made() -> bool:
    return bool(shutil.which("unshare")) and subprocess.run([*unshared(), "true"], capture_output=True).returncode == 0


def cgroups_bound_memory() -> bool:
    found = Cgroups.detect()
    return found is not None and found.memory


REQUIREMENTS = {
    "redis-server": Requirement(redis_binary, "apt-get install redis-server"),
    "openssl": Requirement(lambda: shutil.which("openssl"), "apt-get install openssl"),
    "libfaketime": Requirement(faketime, "apt-get install libfaketime"),
    "agents": Requirement(agent_programs, "npm install them into .agents, as .ci/run does"),
    "namespaces": Requirement(namespaces_can_be_made, "root, or user namespaces"),
    "root": Requirement(is_root, "run as root"),
    "cgroups": Requirement(Cgroups.detect, "a cgroup that may be written", in_ci=False),
    "memory cgroups": Requirement(cgroups_bound_memory, "a cgroup with the memory controller", in_ci=False),
}


def binary(flavour: str) -> str:
    """The program of a flavour of server."""
    found = valkey_binary() if flavour == "valkey" else redis_binary()
    assert found is not None
    return found


FLAVOURS = ("valkey", pytest.param("redis", marks=pytest.mark.needs("redis-server")))
"""The server that agentq brings, and the distribution's."""
