"""What is asked and answered, for the documents of the API. A test compares the answers with real ones."""

from __future__ import annotations

from typing import Any

RUN = "run_01k9zq3c5007m2x4c8r1tnq"
AT = "2030-01-31T14:30:00.000Z"

RUNS: dict[str, Any] = {
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

SUMMARY: dict[str, Any] = {
    "id": RUN,
    "state": "running",
    "reason": None,
    "queue": "default",
    "priority": 5,
    "demands": {},
    "attempt": 1,
    "worker": "build01-4711-x",
    "created_at": AT,
}
OUTCOME = {"class": "ok", "exit_code": 0, "error": None, "result": None}
ENTRY = {"id": "1895754600000-0", "at": AT, "attempt": 1, "stream": "out", "text": "ok\n", "from_byte": 0}
STATES = (
    "blocked",
    "scheduled",
    "pending",
    "claimed",
    "running",
    "waiting",
    "completed",
    "failed",
    "cancelled",
    "skipped",
)
QUEUE: dict[str, Any] = {
    "queue": "default",
    **dict.fromkeys(STATES, 0),
    "oldest_at": None,
    "submitted_a_minute": 12.0,
    "ended_a_minute": 11.5,
    "paused": None,
    "drained": None,
}
LIMIT = {"key": "repo:acme", "max": 3, "rate": None, "when_full": "queue", "shut_until": None, "shut_why": None,
         "held": 3, "waiting": 7}  # fmt: skip
TOKEN: dict[str, Any] = {
    "id": "3f09c2ab41d7",
    "name": "ci",
    "kind": "client",
    "scopes": ["submit", "read"],
    "queues": [],
    "rate": None,
    "created_at": AT,
    "expires_at": None,
    "used_at": AT,
}
MOVED = {"id": RUN, "state": "pending"}

ANSWERS: dict[tuple[str, str], Any] = {
    ("POST", "/runs"): {"id": RUN, "created": True},
    ("GET", "/runs"): {"runs": [SUMMARY], "next": None},
    ("GET", "/runs/{run_id}/logs"): {"entries": [ENTRY], "next": ENTRY["id"], "ended": False},
    ("GET", "/runs/{run_id}/result"): {"id": RUN, "state": "completed", "outcome": OUTCOME, "tail": "ok\n"},
    ("GET", "/runs/{run_id}/children"): {"live": 0, "runs": []},
    ("GET", "/runs/{run_id}/why"): {
        "id": RUN,
        "state": "pending",
        "because": ["No worker serves the queue default; start one with `agentq worker`."],
    },
    ("POST", "/runs/{run_id}/cancel"): MOVED | {"state": "cancelled"},
    ("POST", "/runs/{run_id}/retry"): MOVED,
    ("POST", "/runs/{run_id}/signal"): MOVED,
    ("POST", "/runs/{run_id}/approve"): MOVED,
    ("GET", "/queues"): {"queues": [QUEUE]},
    ("GET", "/queues/{name}"): QUEUE,
    ("POST", "/queues/{name}/purge"): {"queue": "default", "cancelled": 12},
    ("POST", "/queues/{name}/pause"): {"queue": "default", "paused": True},
    ("PUT", "/limits/{key:path}"): LIMIT,
    ("GET", "/limits"): {"limits": [LIMIT]},
    ("GET", "/tokens"): {"tokens": [TOKEN]},
    ("GET", "/health"): {"status": "healthy"},
    ("GET", "/ready"): {
        "ready": True,
        "schema": "agentq 1.0",
        "checks": {"store": "ok", "events": "ok", "duties": "ok", "server": "ok"},
    },
}
