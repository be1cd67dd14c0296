"""What runners and clients of other systems say and are answered, for the documents of the API: dialect C, the newest.

A test holds the names against real answers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

RUN_ID, SESSION_ID, RUNNER_ID = "run_01k9zq3c5007m2x4c8r1tnq", "ses_317585f27686", "lnch_3f09c2ab41d7"
OK_FIELDS = {"ok": True}
RUNNER_FIELDS = {"runner_id": RUNNER_ID}
TIMESTAMP = "2030-01-31T14:30:00.000000+00:00"
LOCATION_FIELDS = {"hostname": "build01", "project_dir": "/srv/project", "executor_profile": "coding"}
SESSION_FIELDS = {"session_id": SESSION_ID, "session_name": "research", "status": "running", **LOCATION_FIELDS}


class DialectExample(NamedTuple):
    """A request, if it has a body, and its answer."""

    answered: dict[str, Any] | list[dict[str, Any]]
    asked: dict[str, Any] | None = None


def _build_kind_examples(kind: str) -> dict[tuple[str, str], DialectExample]:
    """What is asked and answered of one kind of thing that is kept for runners."""
    said = {"name": "researcher", "description": "Finds out what is known of something."}
    one, kept = f"/{kind}/{{name}}", {"name": "researcher", "created_at": TIMESTAMP, "modified_at": TIMESTAMP}
    return {
        ("GET", f"/{kind}"): DialectExample([kept]),
        ("POST", f"/{kind}"): DialectExample(kept, said),
        ("GET", one): DialectExample(kept),
        **{(method, one): DialectExample(kept, {"description": "Finds out more."}) for method in ("PATCH", "PUT")},
    }


EXAMPLES: dict[tuple[str, str], DialectExample] = {
    **_build_kind_examples("agents"),
    **_build_kind_examples("capabilities"),
    **_build_kind_examples("scripts"),
    **_build_kind_examples("mcp-servers"),
    ("PATCH", "/agents/{name}/status"): DialectExample(
        {"name": "researcher", "status": "inactive"}, {"status": "inactive"}
    ),
    ("POST", "/config/import"): DialectExample(
        {
            **OK_FIELDS,
            "message": "Configuration imported successfully",
            "agents_imported": 1,
            "agents_replaced": 0,
            "capabilities_imported": 0,
            "capabilities_replaced": 0,
        }
    ),
    ("POST", "/runner/register"): DialectExample(
        {
            "runner_id": RUNNER_ID,
            "poll_endpoint": "/runner/runs",
            "poll_timeout_seconds": 30,
            "heartbeat_interval_seconds": 60,
        },
        {**LOCATION_FIELDS, "executor": {"type": "autonomous", "command": "executors/claude-code"}, "tags": ["python"]},
    ),
    ("GET", "/runner/runs"): DialectExample(
        {
            "run": {
                "run_id": RUN_ID,
                "session_id": SESSION_ID,
                "prompt": "Mend it.",
                "parameters": {"prompt": "Mend it."},
            }
        }
    ),
    ("POST", "/runner/heartbeat"): DialectExample(OK_FIELDS, RUNNER_FIELDS),
    ("POST", "/runner/runs/{run_id}/started"): DialectExample(OK_FIELDS, RUNNER_FIELDS),
    ("POST", "/runner/runs/{run_id}/completed"): DialectExample(OK_FIELDS, {**RUNNER_FIELDS, "status": "success"}),
    ("POST", "/runner/runs/{run_id}/failed"): DialectExample(
        OK_FIELDS, {**RUNNER_FIELDS, "error": "Process exited with code 1"}
    ),
    ("POST", "/runner/runs/{run_id}/stopped"): DialectExample(OK_FIELDS, {**RUNNER_FIELDS, "signal": "SIGTERM"}),
    ("POST", "/runner/sessions/{session_id}/status"): DialectExample(
        OK_FIELDS, {**RUNNER_FIELDS, "status": "finished"}
    ),
    ("GET", "/runners"): DialectExample(
        {
            "runners": [
                {
                    **RUNNER_FIELDS,
                    **LOCATION_FIELDS,
                    "registered_at": TIMESTAMP,
                    "last_heartbeat": TIMESTAMP,
                    "status": "online",
                }
            ]
        }
    ),
    ("DELETE", "/runners/{runner_id}"): DialectExample(
        {**OK_FIELDS, "message": "Runner deregistered", "initiated_by": "self"}
    ),
    ("GET", "/sessions/by-name/{session_name}"): DialectExample({"session": SESSION_FIELDS}),
    ("GET", "/sessions/{session_id}/status"): DialectExample({"status": "idle"}),
    ("GET", "/sessions/{session_id}/result"): DialectExample(
        {"result": "Done.", "result_text": "Done.", "result_data": None}
    ),
    ("GET", "/sessions/{session_id}/affinity"): DialectExample(
        {"affinity": {"session_id": SESSION_ID, **LOCATION_FIELDS}}
    ),
    ("GET", "/sessions/{session_id}/events"): DialectExample(
        {"events": [{"id": "1895754600000-0", "run_id": RUN_ID, "event_type": "result"}], "next": None}
    ),
    ("POST", "/sessions/{session_id}/events"): DialectExample(
        {**OK_FIELDS, "id": "1895754600000-0"},
        {"event_type": "result", "session_id": SESSION_ID, "result_text": "Done."},
    ),
    ("POST", "/sessions/{session_id}/bind"): DialectExample(
        {**OK_FIELDS, "session": SESSION_FIELDS}, {"executor_session_id": "0b3c", **LOCATION_FIELDS}
    ),
    ("PATCH", "/sessions/{session_id}/metadata"): DialectExample(
        {**OK_FIELDS, "session": SESSION_FIELDS}, {"project_dir": "/srv/project"}
    ),
    ("POST", "/sessions/{session_id}/stop"): DialectExample(
        {**OK_FIELDS, "session_id": SESSION_ID, "status": "stopping"}
    ),
    ("DELETE", "/sessions/{session_id}"): DialectExample(
        {**OK_FIELDS, "session_id": SESSION_ID, "runs_removed_from_cache": 1}
    ),
    ("POST", "/runs/{run_id}/stop"): DialectExample(
        {**OK_FIELDS, "run_id": RUN_ID, "session_id": SESSION_ID, "status": "stopping"}
    ),
}
"""By method and path."""
