"""The log of the server, and of a worker: one line for each thing, with nothing secret in it.

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
from agentq.coordinator.moments import iso

_SECRETS = (
    (re.compile(r"(\w+://)[^\s/@]*@"), r"\1…@"),
    (re.compile(r"(aq_[a-z]+_[0-9a-f]{12})_[0-9a-f]+"), r"\1_…"),
    (re.compile(r"(?i)(bearer\s+)(?!aq_)\S+"), r"\1…"),
    (re.compile(r"(input_value=).*?(, input_type=)"), r"\1…\2"),
)
NOISE = ("uvicorn.access",)
SENTENCES = logging.getLogger("agentq.worker.sentences")
"""What a worker tells whoever started it, where its log is JSON."""


def masked(text: str) -> str:
    """The text without passwords and tokens."""
    for pattern, kept in _SECRETS:
        text = pattern.sub(kept, text)
    return text


class Lines(logging.Formatter):
    """Makes a line of JSON of a record; its `fields`, where it has some, are fields of the line."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": iso(wall_ms()),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return masked(json.dumps(line, ensure_ascii=True, default=str))


class Text(logging.Formatter):
    """Makes a line for a person of a record: the local time, what happened, its fields."""

    def format(self, record: logging.LogRecord) -> str:
        fields = ", ".join(f"{name} {_printable(value)}" for name, value in getattr(record, "fields", {}).items())
        level = "" if record.levelno == logging.INFO else f"{record.levelname.lower()}: "
        parts = [_printable(record.getMessage()), *([fields] if fields else [])]
        line = f"{self.formatTime(record, '%H:%M:%S')}  {level}{': '.join(parts)}"
        if record.exc_info:
            line += "".join(f"\n  {_printable(each)}" for each in self.formatException(record.exc_info).splitlines())
        return masked(line)


def _printable(value: object) -> str:
    """The text, with nothing in it that a terminal obeys: clients choose paths and names."""
    text = str(value)
    return text if text.isprintable() else json.dumps(text)


def keep(level: str) -> None:
    """Write lines of a server to stderr from now on: ours, and those of the libraries that serve."""
    # The loop warns of each write to a client that has just gone.
    least = {"agentq.server": logging.DEBUG, "uvicorn": logging.WARNING, "asyncio": logging.ERROR}
    _write(least, level, as_json=not sys.stderr.isatty())
    for name in NOISE:
        logging.getLogger(name).disabled = True


def keep_of_worker(level: str, *, as_json: bool) -> None:
    """Write lines of a worker to stderr from now on. What it says to whoever started it has no level."""
    _write({"agentq.worker": logging.DEBUG}, level, as_json=as_json)
    SENTENCES.setLevel(logging.INFO)


def _write(least: dict[str, int], level: str, *, as_json: bool) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Lines() if as_json else Text())
    for name, lowest in least.items():
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(max(lowest, _number(level)))


def _number(level: str) -> int:
    return logging.getLevelNamesMapping()[level.upper()]
