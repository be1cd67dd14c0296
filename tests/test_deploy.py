"""What stands in `deploy` is read by programs that are not here; so each word of ours in it is held against ours."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from support.generated_docs import ROOT
from support.servers import Server

from agentq.cli.main import load_command
from agentq.coordinator.config.settings import URL_FILE_VARIABLE, VARIABLE_PREFIX, Settings
from agentq.coordinator.config.settings_files import CONFIG_VARIABLE

DEPLOY = ROOT / "deploy"
ENVIRONMENT_FILE = re.compile(r"^EnvironmentFile=/etc/(.+)$", re.MULTILINE)


def started() -> Iterator[list[str]]:
    """The words of each `agentq` that is started there."""
    for path in (*sorted(DEPLOY.glob("systemd/*.service")), DEPLOY / "crontab"):
        for line in path.read_text().splitlines():
            found = re.fullmatch(r"(?:ExecStart=/usr/bin/env |[* ]+ )agentq ([^>]+).*", line)
            if found is not None:
                yield shlex.split(found[1])
    services: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    yield from (service["command"] for service in services.values() if "build" in service and "command" in service)


def test_each_command_and_option_is_one_that_there_is() -> None:
    words = list(started())
    for name, *options in words:
        flags = {flag for parameter in load_command(name).params for flag in parameter.opts}
        assert {word for word in options if word.startswith("-")} <= flags, (name, options)

    assert {name for name, *_ in words} == {"serve", "worker", "reap"}
    assert len(words) == 6


def test_what_the_image_is_made_of_is_there() -> None:
    copied = [
        line.split()[1:-1] for line in (DEPLOY / "Dockerfile").read_text().splitlines() if line.startswith("COPY")
    ]

    assert len(copied) > 2
    assert all((ROOT / source).exists() for sources in copied for source in sources)


def test_the_image_has_the_versions_that_were_tested() -> None:
    text = (DEPLOY / "Dockerfile").read_text()

    assert "constraints.txt" in text.partition("COPY")[2].partition("\n")[0]
    assert "pip install --no-cache-dir --constraint /src/constraints.txt /src" in text


def test_every_environment_file_of_a_unit_has_a_sample_of_settings_that_there_are() -> None:
    files = {found for path in DEPLOY.glob("systemd/*.service") for found in ENVIRONMENT_FILE.findall(path.read_text())}
    known = {
        "PATH",
        "PYTHONPATH",
        URL_FILE_VARIABLE,
        CONFIG_VARIABLE,
        *(f"{VARIABLE_PREFIX}{name.upper()}" for name in Settings.model_fields),
    }

    assert files == {"agentq.env"}
    for name in files:
        lines = (DEPLOY / name).read_text().splitlines()
        assert {line.lstrip("#").partition("=")[0] for line in lines if re.match(r"#?\w+=", line)} <= known


def test_compose_needs_no_file_that_is_not_there() -> None:
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())

    named = [each["file"] for kind in ("secrets", "configs") for each in compose.get(kind, {}).values()]
    assert [name for name in named if not (DEPLOY / name).exists()] == []


def test_compose_makes_the_first_token_once(valkey: Server, tmp_path: Path) -> None:
    entrypoint = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["token"]["entrypoint"]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "AGENTQ_URL": valkey.url, "AGENTQ_NAMESPACE": tmp_path.name}

    first, second = (subprocess.run(entrypoint, env=environment, capture_output=True, text=True) for _ in range(2))

    assert (first.returncode, second.returncode) == (0, 0)
    assert "aq_" in first.stdout
    assert "aq_" not in second.stdout
