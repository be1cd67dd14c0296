"""What stands in `deploy` is read by programs that are not here; so each word of ours in it is held against ours."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

import yaml
from docs import ROOT

from agentq.cli.main import load

DEPLOY = ROOT / "deploy"


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
        flags = {flag for parameter in load(name).params for flag in parameter.opts}
        assert {word for word in options if word.startswith("-")} <= flags, (name, options)

    assert {name for name, *_ in words} == {"serve", "worker", "reap"}
    assert len(words) == 6


def test_what_the_image_is_made_of_is_there() -> None:
    copied = [
        line.split()[1:-1] for line in (DEPLOY / "Dockerfile").read_text().splitlines() if line.startswith("COPY")
    ]

    assert len(copied) > 2
    assert all((ROOT / source).exists() for sources in copied for source in sources)
