"""What runners and clients of other systems say and are answered, for the documents of the API: dialect C, the newest.

A test holds the names against real answers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

RUN, SESSION, RUNNER = "run_01k9zq3c5007m2x4c8r1tnq", "ses_317585f27686", "lnch_3f09c2ab41d7"
OK = {"ok": True}
BY = {"runner_id": RUNNER}
AT = "2030-01-31T14:30:00.000000+00:00"
WHERE = {"hostname": "build01", "project_dir": "/srv/project", "executor_profile": "coding"}
OF_SESSION = {"session_id": SESSION, "session_name": "research", "status": "running", **WHERE}


class Example(NamedTuple):
    """A request, if it has a body, and its answer."""

    answered: dict[str, Any] | list[dict[str, Any]]
    asked: dict[str, Any] | None = None


def _shelf(kind: str) -> dict[tuple[str, str], Example]:
    """What is asked and answered of one kind of thing that is kept for runners."""
    said = {"name": "researcher", "description": "Finds out what is known of something."}
    one, kept = f"/{kind}/{{name}}", {"name": "researcher", "created_at": AT, "modified_at": AT}
    return {
        ("GET", f"/{kind}"): Example([kept]),
        ("POST", f"/{kind}"): Example(kept, said),
        ("GET", one): Example(kept),
        **{(method, one): Example(kept, {"description": "Finds out more."}) for method in ("PATCH", "PUT")},
    }


EXAMPLES: dict[tuple[str, str], Example] = {
    **_shelf("agents"),
    **_shelf("capabilities"),
    **_shelf("scripts"),
    **_shelf("mcp-servers"),
    ("PATCH", "/agents/{name}/status"): Example({"name": "researcher", "status": "inactive"}, {"status": "inactive"}),
    ("POST", "/config/import"): Example(
        {
            **OK,
            "message": "Configuration imported successfully",
            "agents_imported": 1,
            "agents_replaced": 0,
            "capabilities_imported": 0,
            "capabilities_replaced": 0,
        }
    ),
    ("POST", "/runner/register"): Example(
        {
            "runner_id": RUNNER,
            "poll_endpoint": "/runner/runs",
            "poll_timeout_seconds": 30,
            "heartbeat_interval_seconds": 60,
        },
        {**WHERE, "executor": {"type": "autonomous", "command": "executors/claude-code"}, "tags": ["python"]},
    ),
    ("GET", "/runner/runs"): Example(
        {"run": {"run_id": RUN, "session_id": SESSION, "prompt": "Mend it.", "parameters": {"prompt": "Mend it."}}}
    ),
    ("POST", "/runner/heartbeat"): Example(OK, BY),
    ("POST", "/runner/runs/{run_id}/started"): Example(OK, BY),
    ("POST", "/runner/runs/{run_id}/completed"): Example(OK, {**BY, "status": "success"}),
    ("POST", "/runner/runs/{run_id}/failed"): Example(OK, {**BY, "error": "Process exited with code 1"}),
    ("POST", "/runner/runs/{run_id}/stopped"): Example(OK, {**BY, "signal": "SIGTERM"}),
    ("POST", "/runner/sessions/{session_id}/status"): Example(OK, {**BY, "status": "finished"}),
    ("GET", "/runners"): Example(
        {"runners": [{**BY, **WHERE, "registered_at": AT, "last_heartbeat": AT, "status": "online"}]}
    ),
    ("DELETE", "/runners/{runner_id}"): Example({**OK, "message": "Runner deregistered", "initiated_by": "self"}),
    ("GET", "/sessions/by-name/{session_name}"): Example({"session": OF_SESSION}),
    ("GET", "/sessions/{session_id}/status"): Example({"status": "idle"}),
    ("GET", "/sessions/{session_id}/result"): Example({"result": "Done.", "result_text": "Done.", "result_data": None}),
    ("GET", "/sessions/{session_id}/affinity"): Example({"affinity": {"session_id": SESSION, **WHERE}}),
    ("GET", "/sessions/{session_id}/events"): Example(
        {"events": [{"id": "1895754600000-0", "run_id": RUN, "event_type": "result"}], "next": None}
    ),
    ("POST", "/sessions/{session_id}/events"): Example(
        {**OK, "id": "1895754600000-0"}, {"event_type": "result", "session_id": SESSION, "result_text": "Done."}
    ),
    ("POST", "/sessions/{session_id}/bind"): Example(
        {**OK, "session": OF_SESSION}, {"executor_session_id": "0b3c", **WHERE}
    ),
    ("PATCH", "/sessions/{session_id}/metadata"): Example(
        {**OK, "session": OF_SESSION}, {"project_dir": "/srv/project"}
    ),
    ("POST", "/sessions/{session_id}/stop"): Example({**OK, "session_id": SESSION, "status": "stopping"}),
    ("DELETE", "/sessions/{session_id}"): Example({**OK, "session_id": SESSION, "runs_removed_from_cache": 1}),
    ("POST", "/runs/{run_id}/stop"): Example({**OK, "run_id": RUN, "session_id": SESSION, "status": "stopping"}),
}
"""By method and path."""
