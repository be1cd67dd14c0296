"""OpenAI's newer API, used by Codex: POST /v1/responses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from agentq.testing.fake_models.messages import (
    ChatMessage,
    HttpReply,
    extract_prompts,
    format_sse,
    message_text,
    split_words,
)
from agentq.testing.fake_models.scenarios import ErrorAnswer, ModelConversation, TextAnswer, ToolUse, quota_reset_s

USAGE = {
    "input_tokens": 1000,
    "input_tokens_details": {"cached_tokens": 400},
    "output_tokens": 100,
    "output_tokens_details": {"reasoning_tokens": 10},
    "total_tokens": 1100,
}


def parse_conversation(body: dict[str, Any]) -> ModelConversation:
    """Parse a request."""
    sent = body.get("input", [])
    messages = [_chat_message(item) for item in sent] if isinstance(sent, list) else [ChatMessage(True, str(sent))]
    prompts, done = extract_prompts(messages)
    tools = tuple(tool.get("name") or tool.get("type", "") for tool in body.get("tools", []))
    system = f"{body.get('instructions') or ''}\n{json.dumps(sent)}".replace("\\n", "\n")
    return ModelConversation(prompts, done, tools, system, str(body.get("model")))


def _chat_message(item: dict[str, Any]) -> ChatMessage:
    return ChatMessage(
        item.get("role") == "user",
        message_text(item.get("content")),
        int(str(item.get("type")).endswith("call_output")),
    )


def stream_answer(
    answer: TextAnswer | ToolUse, conversation: ModelConversation, number: int
) -> Iterator[tuple[float, bytes]]:
    """The pieces of a streamed answer, each with the seconds to wait before it."""
    response = {"id": f"resp_{number}", "object": "response", "model": conversation.model, "output": []}
    yield 0, _format_event("response.created", response={**response, "status": "in_progress"})
    if isinstance(answer, ToolUse):
        item = _tool_call(answer, number)
        yield 0, _format_event("response.output_item.added", output_index=0, item={**item, "arguments": ""})
        yield 0, _format_event("response.function_call_arguments.delta", item_id=item["id"], delta=item["arguments"])
        yield 0, _format_event("response.function_call_arguments.done", item_id=item["id"], arguments=item["arguments"])
    else:
        item = _text_item(answer.text, number)
        yield 0, _format_event("response.output_item.added", output_index=0, item={**item, "content": []})
        words = split_words(answer.text)
        for count, word in enumerate(words):
            if answer.cut and count == len(words) // 2:
                return
            place = {"item_id": item["id"], "output_index": 0, "content_index": 0}
            yield answer.pause_s, _format_event("response.output_text.delta", **place, delta=word)
        yield 0, _format_event("response.output_text.done", item_id=item["id"], text=answer.text)
    yield 0, _format_event("response.output_item.done", output_index=0, item=item)
    ended = {**response, "status": "completed", "output": [item], "usage": USAGE}
    if isinstance(answer, TextAnswer) and answer.stop == "length":
        ended |= {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
        yield 0, _format_event("response.incomplete", response=ended)
        return
    yield 0, _format_event("response.completed", response=ended)


def build_answer(answer: TextAnswer | ToolUse, conversation: ModelConversation, number: int) -> dict[str, Any]:
    """The answer as one document."""
    item = _tool_call(answer, number) if isinstance(answer, ToolUse) else _text_item(answer.text, number)
    return {
        "id": f"resp_{number}",
        "status": "completed",
        "model": conversation.model,
        "output": [item],
        "usage": USAGE,
    }


def _tool_call(answer: ToolUse, number: int) -> dict[str, Any]:
    call = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}", "status": "completed"}
    return {**call, "name": answer.tool, "arguments": json.dumps(answer.input)}


def _text_item(text: str, number: int) -> dict[str, Any]:
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


def build_error(answer: ErrorAnswer) -> HttpReply:
    """The error response of the service."""
    status, kind, message = ERRORS[answer.why]
    error: dict[str, Any] = {"type": kind, "code": kind, "message": message}
    if answer.why == "quota":
        error |= {"plan_type": "plus", "resets_at": quota_reset_s(answer), "resets_in_seconds": answer.after_s}
    headers = {"retry-after": str(answer.after_s)} if answer.why == "throttled" else {}
    return HttpReply(status, {"error": error}, headers)


def _format_event(name: str, **fields: object) -> bytes:
    return format_sse({"type": name, **fields}, name)
