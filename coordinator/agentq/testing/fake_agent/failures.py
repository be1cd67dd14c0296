"""The output of Claude for each kind of failure: events before the result, and fields of the result."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from agentq.testing.fake_agent.protocol import TurnEnded


@dataclass(frozen=True, slots=True)
class FailureOutput:
    """Events, and fields of the result."""

    events: list[dict[str, Any]]
    result: dict[str, Any]


REQUEST_ERRORS = {
    "throttled": (429, "rate_limit", "rate_limit_error", "API Error: Request rejected (429) · Please slow down."),
    "overloaded": (529, "overloaded", "overloaded_error", "API Error: 529 Overloaded."),
    "auth": (401, "authentication_failed", "authentication_error", "Invalid API key · Please run /login"),
    "credit": (400, "billing_error", "invalid_request_error", "Credit balance is too low"),
    "context": (400, "invalid_request", "invalid_request_error", "Prompt is too long"),
    "limit": (429, "rate_limit", "rate_limit_error", ""),
    "refused": (None, "invalid_request", None, "API Error: safeguards flagged this message."),
}
"""Failed requests: HTTP status, mark of the message, error type of the service, and text."""
END_ERRORS = {
    "turns": ("error_max_turns", "max_turns", "Reached maximum number of turns"),
    "budget": ("error_max_budget_usd", "budget_exhausted", "Reached maximum budget"),
    "failed": ("error_during_execution", "error", "It failed."),
    "interrupted": ("error_during_execution", "aborted_streaming", "It was interrupted."),
}


def describe_failure(end: TurnEnded) -> FailureOutput:
    """The output for this end of a turn."""
    if end.why in REQUEST_ERRORS:
        return _describe_request_error(end)
    if end.why in END_ERRORS:
        subtype, reason, sentence = END_ERRORS[end.why]
        return FailureOutput([], {"subtype": subtype, "terminal_reason": reason, "errors": [end.text or sentence]})
    success = {"subtype": "success", "terminal_reason": "completed", "stop_reason": "end_turn"}
    return FailureOutput([], {**success, "api_error_status": None, "result": end.text})


def _describe_request_error(end: TurnEnded) -> FailureOutput:
    """Claude reports a success with an error."""
    status, mark, kind, text = REQUEST_ERRORS[end.why]
    text = end.text or text
    events: list[dict[str, Any]] = []
    marks: dict[str, Any] = {"api_error_status": status, "api_error_type": kind}
    if end.until_ms is not None:
        until_s = end.until_ms // 1000
        limit = {"status": "rejected", "resetsAt": until_s, "rateLimitType": "five_hour", "isUsingOverage": False}
        events.append({"kind": "rate_limit_event", "rate_limit_info": limit})
        text = f"You've hit your 5-hour limit · resets {datetime.fromtimestamp(until_s, UTC):%-I:%M%p} (UTC)"
        text = text.replace("AM", "am").replace("PM", "pm")
        marks["api_error"] = "usage_limit_reached"
    elif end.why not in ("context", "refused"):
        retry = {"attempt": 1, "max_retries": 1, "retry_delay_ms": 500, "error_status": status, "error": mark}
        events.append({"kind": "system", "subtype": "api_retry", **retry})
    stop = "refusal" if end.why == "refused" else "stop_sequence"
    message = {"role": "assistant", "type": "message", "model": "<synthetic>", "stop_reason": stop}
    reply = {**message, "content": [{"type": "text", "text": text}], "usage": {"input_tokens": 0, "output_tokens": 0}}
    events.append({"kind": "assistant", "message": reply, "error": mark, "is_api_error_message": True, **marks})
    reason = "prompt_too_long" if end.why == "context" else "api_error"
    return FailureOutput(
        events, {"subtype": "success", "terminal_reason": reason, "stop_reason": stop, "result": text, **marks}
    )
