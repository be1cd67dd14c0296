"""Response models of the routes, for the API document and its readers; they are not used at run time.

Responses are built by `public_json.py` and `responses.py`. A test compares their field names with these models.
"""

from __future__ import annotations

from typing import Any

from agentq.server.schema import operations, plans, runs

RUN_PATH, SESSION_PATH, PLAN_PATH = "/runs/{run_id}", "/sessions/{name}", "/plans/{plan}"
SCHEDULE_PATH, QUEUE_PATH, LIMIT_PATH, WORKER_PATH = (
    "/schedules/{name}",
    "/queues/{name}",
    "/limits/{key:path}",
    "/workers/{worker}",
)

RESPONSE_MODELS: dict[tuple[str, str], Any] = {
    ("POST", "/runs"): runs.SubmitResult | runs.SubmitManyResult,
    ("POST", "/runs/check"): runs.SubmissionCheckView,
    ("GET", "/runs"): runs.RunViewPage,
    ("GET", RUN_PATH): runs.RunView,
    **{
        ("POST", f"{RUN_PATH}/{verb}"): runs.RunStateView
        for verb in ("cancel", "retry", "signal", "approve", "deny", "wake")
    },
    ("GET", f"{RUN_PATH}/logs"): runs.LogViewPage,
    ("GET", f"{RUN_PATH}/result"): runs.RunResultView,
    ("GET", f"{RUN_PATH}/attempts"): runs.AttemptViewList,
    ("GET", f"{RUN_PATH}/children"): runs.ChildrenView,
    ("GET", f"{RUN_PATH}/why"): runs.ExplanationView,
    ("GET", f"{RUN_PATH}/signals"): runs.SignalViewList,
    ("GET", "/events/recent"): runs.RecentEventList,
    ("GET", "/sessions"): runs.SessionViewPage,
    ("POST", "/sessions"): runs.SessionView,
    ("GET", SESSION_PATH): runs.SessionView,
    ("GET", f"{SESSION_PATH}/turns"): runs.TurnViewPage,
    ("POST", f"{SESSION_PATH}/turns"): runs.SubmitResult,
    **{("POST", f"{SESSION_PATH}/{verb}"): runs.SessionView for verb in ("fork", "close")},
    ("GET", "/plans"): plans.PlanViewPage,
    ("POST", "/plans"): plans.PlanView,
    ("GET", PLAN_PATH): plans.PlanView,
    ("GET", f"{PLAN_PATH}/header"): plans.PlanHeaderView,
    ("GET", f"{PLAN_PATH}/tasks"): plans.PlanTaskViewPage,
    ("POST", f"{PLAN_PATH}/tasks"): plans.AddTasksResult,
    **{("POST", f"{PLAN_PATH}/{verb}"): plans.PlanView for verb in ("cancel", "complete", "retry")},
    ("GET", "/schedules"): plans.ScheduleViewList,
    ("GET", SCHEDULE_PATH): plans.ScheduleDetailView,
    ("PUT", SCHEDULE_PATH): plans.ScheduleView,
    **{("POST", f"{SCHEDULE_PATH}/{verb}"): plans.ScheduleView for verb in ("pause", "resume")},
    ("POST", f"{SCHEDULE_PATH}/run"): runs.ReceiptView,
    ("GET", f"{SCHEDULE_PATH}/history"): plans.ScheduleHistoryView,
    ("GET", "/queues"): operations.QueueViewPage,
    ("GET", QUEUE_PATH): operations.QueueView,
    **{("POST", f"{QUEUE_PATH}/{verb}"): operations.PauseQueueResult for verb in ("pause", "resume")},
    ("POST", f"{QUEUE_PATH}/drain"): operations.DrainQueueResult,
    ("POST", f"{QUEUE_PATH}/purge"): operations.PurgeQueueResult,
    ("POST", f"{QUEUE_PATH}/move"): operations.MoveRunsResult,
    ("POST", f"{QUEUE_PATH}/weigh"): operations.FairWeightResult,
    ("GET", "/limits"): operations.LimitViewList,
    ("GET", LIMIT_PATH): operations.LimitDetailView,
    ("PUT", LIMIT_PATH): operations.LimitView,
    **{("POST", f"{LIMIT_PATH}/{verb}"): operations.LimitView for verb in ("shut", "open")},
    ("GET", "/workers"): operations.WorkerViewList,
    ("GET", WORKER_PATH): operations.WorkerView,
    **{("POST", f"{WORKER_PATH}/{verb}"): operations.DrainWorkerResult for verb in ("drain", "stop")},
    ("GET", "/tokens"): operations.TokenViewList,
    ("POST", "/tokens"): operations.CreatedTokenView,
    ("DELETE", "/tokens/{token:path}"): operations.RevocationView,
    ("GET", "/health"): operations.HealthView,
    ("GET", "/ready"): operations.ReadinessView,
}
"""By method and path."""
