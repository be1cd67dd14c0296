"""What the routes answer, as models: for the document of the API and its readers, and for nothing at run time.

What is answered is made by `shapes.py` and `views.py`. A test holds real answers against these models, name by name.
"""

from __future__ import annotations

from typing import Any

from agentq.coordinator.server.answers import house, plans, runs

RUN, SESSION, PLAN = "/runs/{run_id}", "/sessions/{name}", "/plans/{plan}"
SCHEDULE, QUEUE, LIMIT, WORKER = "/schedules/{name}", "/queues/{name}", "/limits/{key:path}", "/workers/{worker}"

ANSWERS: dict[tuple[str, str], Any] = {
    ("POST", "/runs"): runs.Submitted | runs.Receipts,
    ("GET", "/runs"): runs.RunPage,
    ("GET", RUN): runs.Run,
    **{("POST", f"{RUN}/{verb}"): runs.Moved for verb in ("cancel", "retry", "signal", "approve", "deny", "wake")},
    ("GET", f"{RUN}/logs"): runs.LogPage,
    ("GET", f"{RUN}/result"): runs.Result,
    ("GET", f"{RUN}/attempts"): runs.Attempts,
    ("GET", f"{RUN}/children"): runs.Children,
    ("GET", f"{RUN}/why"): runs.Why,
    ("GET", "/sessions"): runs.SessionPage | runs.AllSessions,
    ("POST", "/sessions"): runs.Session,
    ("GET", SESSION): runs.Session,
    ("GET", f"{SESSION}/turns"): runs.TurnPage,
    ("POST", f"{SESSION}/turns"): runs.Submitted,
    **{("POST", f"{SESSION}/{verb}"): runs.Session for verb in ("fork", "close")},
    ("GET", "/plans"): plans.PlanPage,
    ("POST", "/plans"): plans.Plan,
    ("GET", PLAN): plans.Plan,
    ("GET", f"{PLAN}/tasks"): plans.TaskPage,
    ("POST", f"{PLAN}/tasks"): plans.TasksAdded,
    **{("POST", f"{PLAN}/{verb}"): plans.Plan for verb in ("cancel", "retry")},
    ("GET", "/schedules"): plans.Schedules,
    ("GET", SCHEDULE): plans.ScheduleAhead,
    ("PUT", SCHEDULE): plans.Schedule,
    **{("POST", f"{SCHEDULE}/{verb}"): plans.Schedule for verb in ("pause", "resume")},
    ("POST", f"{SCHEDULE}/run"): runs.Receipt,
    ("GET", f"{SCHEDULE}/history"): plans.History,
    ("GET", "/queues"): house.Queues,
    ("GET", QUEUE): house.Queue,
    **{("POST", f"{QUEUE}/{verb}"): house.Paused for verb in ("pause", "resume")},
    ("POST", f"{QUEUE}/drain"): house.Drained,
    ("POST", f"{QUEUE}/purge"): house.Purged,
    ("POST", f"{QUEUE}/move"): house.Emptied,
    ("POST", f"{QUEUE}/weigh"): house.Weighed,
    ("GET", "/limits"): house.Limits,
    ("GET", LIMIT): house.Limit,
    ("PUT", LIMIT): house.Limit,
    **{("POST", f"{LIMIT}/{verb}"): house.Limit for verb in ("shut", "open")},
    ("GET", "/workers"): house.Workers,
    ("GET", WORKER): house.Worker,
    **{("POST", f"{WORKER}/{verb}"): house.SentAway for verb in ("drain", "stop")},
    ("GET", "/tokens"): house.Tokens,
    ("POST", "/tokens"): house.MadeToken,
    ("DELETE", "/tokens/{token}"): house.Revoked,
    ("GET", "/health"): house.Health,
    ("GET", "/ready"): house.Ready,
}
"""By method and path."""
