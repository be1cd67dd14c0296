"""Logging of the server and of workers: one line per record, secrets removed.

A server writes JSON, in UTC, and text on a terminal; a worker writes text, and JSON if it is told to.

Of a request it is who (the id of a token), what (method and path, never the query) and how it ended; requests that
change something so are an audit as well. Passwords in addresses, tokens, and the input that an error repeats are taken
out of every text, wherever they come from.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from typing import Any

from agentq.coordinator.clock import wall_ms
from agentq.coordinator.model.durations import format_iso

_SECRET_REPLACEMENTS = (
    (re.compile(r"(\w+://)[^\s/@]*@"), r"\1…@"),
    (re.compile(r"(aq_[a-z]+_[0-9a-f]{12})_[0-9a-f]+"), r"\1_…"),
    (re.compile(r"(?i)(bearer\s+)(?!aq_)\S+"), r"\1…"),
    (re.compile(r"(input_value=).*?(, input_type=)"), r"\1…\2"),
)
DISABLED_LOGGERS = ("uvicorn.access",)
WORKER_MESSAGES = logging.getLogger("agentq.worker.sentences")
"""What a worker tells whoever started it, where its log is JSON."""


def mask_secrets(text: str) -> str:
    """The text without passwords and tokens."""
    for pattern, kept in _SECRET_REPLACEMENTS:
        text = pattern.sub(kept, text)
    return text


class JsonLogFormatter(logging.Formatter):
    """Makes a line of JSON of a record; its `fields`, where it has some, are fields of the line."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": format_iso(wall_ms()),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return mask_secrets(json.dumps(line, ensure_ascii=True, default=str))


class TextLogFormatter(logging.Formatter):
    """Makes a line for a person of a record: the local time, what happened, its fields."""

    def format(self, record: logging.LogRecord) -> str:
        fields = ", ".join(
            f"{name} {_escape_unprintable(value)}" for name, value in getattr(record, "fields", {}).items()
        )
        level = "" if record.levelno == logging.INFO else f"{record.levelname.lower()}: "
        parts = [_escape_unprintable(record.getMessage()), *([fields] if fields else [])]
        line = f"{self.formatTime(record, '%H:%M:%S')}  {level}{': '.join(parts)}"
        if record.exc_info:
            line += "".join(
                f"\n  {_escape_unprintable(each)}" for each in self.formatException(record.exc_info).splitlines()
            )
        return mask_secrets(line)


def _escape_unprintable(value: object) -> str:
    """The text, with nothing in it that a terminal obeys: clients choose paths and names."""
    text = str(value)
    return text if text.isprintable() else json.dumps(text)


def log_server(level: str) -> None:
    """Write lines of a server to stderr from now on: ours, and those of the libraries that serve."""
    # The loop warns of each write to a client that has just gone.
    least = {"agentq.server": logging.DEBUG, "uvicorn": logging.WARNING, "asyncio": logging.ERROR}
    _set_up_loggers(least, level, as_json=not sys.stderr.isatty())
    for name in DISABLED_LOGGERS:
        logging.getLogger(name).disabled = True


def log_worker(level: str, *, as_json: bool) -> None:
    """Write lines of a worker to stderr from now on. What it says to whoever started it has no level."""
    _set_up_loggers({"agentq.worker": logging.DEBUG}, level, as_json=as_json)
    WORKER_MESSAGES.setLevel(logging.INFO)


def _set_up_loggers(least: dict[str, int], level: str, *, as_json: bool) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLogFormatter() if as_json else TextLogFormatter())
    for name, lowest in least.items():
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(max(lowest, _level_number(level)))


def _level_number(level: str) -> int:
    return logging.getLevelNamesMapping()[level.upper()]
