"""The log of the server: JSON for programs, text for a person, and nothing that a client could do to a terminal."""

from __future__ import annotations

import json
import logging
import os
import pty
import sys
from collections.abc import Iterator

import pytest

from agentq.coordinator import log_setup

LOGGERS = ("agentq.server", "uvicorn", "asyncio")


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """The loggers of this process are as they were."""
    found = [(logger, logger.handlers, logger.propagate, logger.level) for logger in map(logging.getLogger, LOGGERS)]
    yield
    for logger, handlers, propagate, level in found:
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)


def written(to: int, read_from: int, monkeypatch: pytest.MonkeyPatch) -> str:
    with os.fdopen(to, "w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        log_setup.log_server("info")
        fields = {"path": "/runs/\x1b[2J", "token": "aq_admin_0123456789ab_00ff"}
        logging.getLogger("agentq.server").warning("request", extra={"fields": fields})
        stream.flush()
        return os.read(read_from, 10_000).decode()


def test_in_a_pipe_a_line_is_json(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()

    line = json.loads(written(writer, reader, monkeypatch))

    os.close(reader)
    assert (line["event"], line["level"], line["path"]) == ("request", "warning", "/runs/\x1b[2J")
    assert line["token"] == "aq_admin_0123456789ab_…"


def test_on_a_terminal_a_line_is_text_without_control_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    leader, follower = pty.openpty()

    line = written(follower, leader, monkeypatch)

    os.close(leader)
    assert line[2] == ":"
    assert line[8:] == '  warning: request: path "/runs/\\u001b[2J", token aq_admin_0123456789ab_…\r\n'
