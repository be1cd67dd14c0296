"""Example requests for the API documents."""

from __future__ import annotations

from typing import Any

RUN_EXAMPLES: dict[str, Any] = {
    "command": {"summary": "A command", "value": {"kind": "command", "argv": ["make", "test"], "timeout_ms": 600_000}},
    "agent": {
        "summary": "A prompt for an agent",
        "value": {"kind": "agent", "agent": "claude", "prompt": "Mend the failing test.", "cwd": "/srv/project"},
    },
    "function": {"summary": "A function", "value": {"kind": "function", "function": "shop.orders:bill", "args": [17]}},
    "many": {
        "summary": "Many",
        "value": {"runs": [{"kind": "command", "argv": ["make"]}, {"kind": "command", "argv": ["make", "docs"]}]},
    },
}
