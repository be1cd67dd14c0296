"""What the server writes down of itself: one line of JSON for each thing, in UTC, with nothing secret in it.

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


def keep(level: str) -> None:
    """Write lines to stderr from now on: ours, and those of the libraries that serve."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Lines())
    # The loop warns of each write to a client that has just gone.
    for name, least in (("agentq.server", logging.DEBUG), ("uvicorn", logging.WARNING), ("asyncio", logging.ERROR)):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(max(least, _number(level)))
    for name in NOISE:
        logging.getLogger(name).disabled = True


def _number(level: str) -> int:
    return logging.getLevelNamesMapping()[level.upper()]
