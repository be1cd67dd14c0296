"""OpenAI's newer dialect: POST /v1/responses, which Codex speaks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from agentq.testing.models.dialect import Reply, Said, event, joined, newest_prompts, text_of
from agentq.testing.models.scenarios import Conversation, Refusal, Use, Words, reset_at_s

USAGE = {
    "input_tokens": 1000,
    "input_tokens_details": {"cached_tokens": 400},
    "output_tokens": 100,
    "output_tokens_details": {"reasoning_tokens": 10},
    "total_tokens": 1100,
}


def conversation(body: dict[str, Any]) -> Conversation:
    """What was sent."""
    sent = body.get("input", [])
    said = [_said(item) for item in sent] if isinstance(sent, list) else [Said(True, str(sent))]
    prompts, done = newest_prompts(said)
    tools = tuple(tool.get("name") or tool.get("type", "") for tool in body.get("tools", []))
    system = f"{body.get('instructions') or ''}\n{json.dumps(sent)}".replace("\\n", "\n")
    return Conversation(prompts, done, tools, system, str(body.get("model")))


def _said(item: dict[str, Any]) -> Said:
    return Said(
        item.get("role") == "user", text_of(item.get("content")), int(str(item.get("type")).endswith("call_output"))
    )


def stream(answer: Words | Use, talk: Conversation, number: int) -> Iterator[tuple[float, bytes]]:
    """Seconds to wait, and what to send then."""
    response = {"id": f"resp_{number}", "object": "response", "model": talk.model, "output": []}
    yield 0, _event("response.created", response={**response, "status": "in_progress"})
    if isinstance(answer, Use):
        item = _call(answer, number)
        yield 0, _event("response.output_item.added", output_index=0, item={**item, "arguments": ""})
        yield 0, _event("response.function_call_arguments.delta", item_id=item["id"], delta=item["arguments"])
        yield 0, _event("response.function_call_arguments.done", item_id=item["id"], arguments=item["arguments"])
    else:
        item = _message(answer.text, number)
        yield 0, _event("response.output_item.added", output_index=0, item={**item, "content": []})
        words = joined(answer.text)
        for count, word in enumerate(words):
            if answer.cut and count == len(words) // 2:
                return
            place = {"item_id": item["id"], "output_index": 0, "content_index": 0}
            yield answer.pause_s, _event("response.output_text.delta", **place, delta=word)
        yield 0, _event("response.output_text.done", item_id=item["id"], text=answer.text)
    yield 0, _event("response.output_item.done", output_index=0, item=item)
    ended = {**response, "status": "completed", "output": [item], "usage": USAGE}
    if isinstance(answer, Words) and answer.stop == "length":
        ended |= {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
        yield 0, _event("response.incomplete", response=ended)
        return
    yield 0, _event("response.completed", response=ended)


def whole(answer: Words | Use, talk: Conversation, number: int) -> dict[str, Any]:
    """The same at once."""
    item = _call(answer, number) if isinstance(answer, Use) else _message(answer.text, number)
    return {"id": f"resp_{number}", "status": "completed", "model": talk.model, "output": [item], "usage": USAGE}


def _call(answer: Use, number: int) -> dict[str, Any]:
    call = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}", "status": "completed"}
    return {**call, "name": answer.tool, "arguments": json.dumps(answer.input)}


def _message(text: str, number: int) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "id": f"item_{number}", "role": "assistant", "status": "completed", "content": content}


ERRORS = {
    "throttled": (429, "rate_limit_exceeded", "Rate limit reached. Please try again in 1s."),
    "quota": (429, "usage_limit_reached", "The usage limit has been reached"),
    "overloaded": (503, "server_is_overloaded", "Our servers are currently overloaded. Please try again later."),
    "auth": (401, "invalid_api_key", "Incorrect API key provided."),
    "credit": (429, "insufficient_quota", "You exceeded your current quota, please check your plan and billing."),
    "context": (400, "context_length_exceeded", "Your input exceeds the context window of this model."),
    "input": (400, "invalid_request_error", "Invalid value: 'input'."),
}  # fmt: skip


def refusal(answer: Refusal) -> Reply:
    """An error, as the service tells it."""
    status, kind, message = ERRORS[answer.why]
    error: dict[str, Any] = {"type": kind, "code": kind, "message": message}
    if answer.why == "quota":
        error |= {"plan_type": "plus", "resets_at": reset_at_s(answer), "resets_in_seconds": answer.after_s}
    headers = {"retry-after": str(answer.after_s)} if answer.why == "throttled" else {}
    return Reply(status, {"error": error}, headers)


def _event(name: str, **fields: object) -> bytes:
    return event({"type": name, **fields}, name)
