"""Examples of requests and responses for the API documents, in dialect C, the newest. A test compares their field names
with real responses."""

from __future__ import annotations

from agentq.server.dialect import RouteExample

RUN_ID, SESSION_ID, RUNNER_ID = "run_01k9zq3c5007m2x4c8r1tnq", "ses_317585f27686", "lnch_3f09c2ab41d7"
OK_FIELDS = {"ok": True}
RUNNER_FIELDS = {"runner_id": RUNNER_ID}
TIMESTAMP = "2030-01-31T14:30:00.000000+00:00"
LOCATION_FIELDS = {"hostname": "build01", "project_dir": "/srv/project", "executor_profile": "coding"}
SESSION_FIELDS = {"session_id": SESSION_ID, "session_name": "research", "status": "running", **LOCATION_FIELDS}


def _build_kind_examples(kind: str) -> dict[tuple[str, str], RouteExample]:
    """Examples for one kind of stored item."""
    body = {"name": "researcher", "description": "Finds out what is known of something."}
    one, kept = f"/{kind}/{{name}}", {"name": "researcher", "created_at": TIMESTAMP, "modified_at": TIMESTAMP}
    return {
        ("GET", f"/{kind}"): RouteExample([kept]),
        ("POST", f"/{kind}"): RouteExample(kept, body),
        ("GET", one): RouteExample(kept),
        **{(method, one): RouteExample(kept, {"description": "Finds out more."}) for method in ("PATCH", "PUT")},
    }


EXAMPLES: dict[tuple[str, str], RouteExample] = {
    **_build_kind_examples("agents"),
    **_build_kind_examples("capabilities"),
    **_build_kind_examples("scripts"),
    **_build_kind_examples("mcp-servers"),
    ("PATCH", "/agents/{name}/status"): RouteExample(
        {"name": "researcher", "status": "inactive"}, {"status": "inactive"}
    ),
    ("POST", "/config/import"): RouteExample(
        {
            **OK_FIELDS,
            "message": "Configuration imported successfully",
            "agents_imported": 1,
            "agents_replaced": 0,
            "capabilities_imported": 0,
            "capabilities_replaced": 0,
        }
    ),
    ("POST", "/runner/register"): RouteExample(
        {
            "runner_id": RUNNER_ID,
            "poll_endpoint": "/runner/runs",
            "poll_timeout_seconds": 30,
            "heartbeat_interval_seconds": 60,
        },
        {**LOCATION_FIELDS, "executor": {"type": "autonomous", "command": "executors/claude-code"}, "tags": ["python"]},
    ),
    ("GET", "/runner/runs"): RouteExample(
        {
            "run": {
                "run_id": RUN_ID,
                "session_id": SESSION_ID,
                "prompt": "Mend it.",
                "parameters": {"prompt": "Mend it."},
            }
        }
    ),
    ("POST", "/runner/heartbeat"): RouteExample(OK_FIELDS, RUNNER_FIELDS),
    ("POST", "/runner/runs/{run_id}/started"): RouteExample(OK_FIELDS, RUNNER_FIELDS),
    ("POST", "/runner/runs/{run_id}/completed"): RouteExample(OK_FIELDS, {**RUNNER_FIELDS, "status": "success"}),
    ("POST", "/runner/runs/{run_id}/failed"): RouteExample(
        OK_FIELDS, {**RUNNER_FIELDS, "error": "Process exited with code 1"}
    ),
    ("POST", "/runner/runs/{run_id}/stopped"): RouteExample(OK_FIELDS, {**RUNNER_FIELDS, "signal": "SIGTERM"}),
    ("POST", "/runner/sessions/{session_id}/status"): RouteExample(OK_FIELDS, {**RUNNER_FIELDS, "status": "finished"}),
    ("GET", "/runners"): RouteExample(
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
    ("DELETE", "/runners/{runner_id}"): RouteExample(
        {**OK_FIELDS, "message": "Runner deregistered", "initiated_by": "self"}
    ),
    ("GET", "/sessions/by-name/{session_name}"): RouteExample({"session": SESSION_FIELDS}),
    ("GET", "/sessions/{session_id}/status"): RouteExample({"status": "idle"}),
    ("GET", "/sessions/{session_id}/result"): RouteExample(
        {"result": "Done.", "result_text": "Done.", "result_data": None}
    ),
    ("GET", "/sessions/{session_id}/affinity"): RouteExample(
        {"affinity": {"session_id": SESSION_ID, **LOCATION_FIELDS}}
    ),
    ("GET", "/sessions/{session_id}/events"): RouteExample(
        {"events": [{"id": "1895754600000-0", "run_id": RUN_ID, "event_type": "result"}], "next": None}
    ),
    ("POST", "/sessions/{session_id}/events"): RouteExample(
        {**OK_FIELDS, "id": "1895754600000-0"},
        {"event_type": "result", "session_id": SESSION_ID, "result_text": "Done."},
    ),
    ("POST", "/sessions/{session_id}/bind"): RouteExample(
        {**OK_FIELDS, "session": SESSION_FIELDS}, {"executor_session_id": "0b3c", **LOCATION_FIELDS}
    ),
    ("PATCH", "/sessions/{session_id}/metadata"): RouteExample(
        {**OK_FIELDS, "session": SESSION_FIELDS}, {"project_dir": "/srv/project"}
    ),
    ("POST", "/sessions/{session_id}/stop"): RouteExample(
        {**OK_FIELDS, "session_id": SESSION_ID, "status": "stopping"}
    ),
    ("DELETE", "/sessions/{session_id}"): RouteExample(
        {**OK_FIELDS, "session_id": SESSION_ID, "runs_removed_from_cache": 1}
    ),
    ("POST", "/runs/{run_id}/stop"): RouteExample(
        {**OK_FIELDS, "run_id": RUN_ID, "session_id": SESSION_ID, "status": "stopping"}
    ),
}
"""By method and path."""
