"""Anthropic's API: POST /v1/messages, streamed or whole."""

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

INPUT_TOKENS, OUTPUT_TOKENS = 1000, 100
STOP_REASONS = {"end": "end_turn", "refusal": "refusal", "length": "max_tokens"}


def parse_conversation(body: dict[str, Any]) -> ModelConversation:
    """Parse a request."""
    messages = []
    for message in body.get("messages", []):
        blocks = message["content"] if isinstance(message["content"], list) else [{"text": message["content"]}]
        results = sum(block.get("type") == "tool_result" for block in blocks)
        messages.append(ChatMessage(message["role"] == "user", message_text(blocks), results))
    prompts, done = extract_prompts(messages)
    tools = tuple(tool.get("name", "") for tool in body.get("tools", []))
    return ModelConversation(prompts, done, tools, message_text(body.get("system", "")), str(body.get("model")))


def stream_answer(
    answer: TextAnswer | ToolUse, conversation: ModelConversation, number: int
) -> Iterator[tuple[float, bytes]]:
    """The pieces of a streamed answer, each with the seconds to wait before it."""
    usage = {"input_tokens": INPUT_TOKENS, "output_tokens": 1, "cache_read_input_tokens": 0}
    message = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": conversation.model}
    yield 0, _format_event("message_start", message={**message, "content": [], "stop_reason": None, "usage": usage})
    if isinstance(answer, ToolUse):
        block: dict[str, object] = {"type": "tool_use", "id": f"toolu_{number}", "name": answer.tool, "input": {}}
        pieces = [(0.0, {"type": "input_json_delta", "partial_json": json.dumps(answer.input)})]
        stop = "tool_use"
    else:
        block = {"type": "text", "text": ""}
        pieces = [(answer.pause_s, {"type": "text_delta", "text": word}) for word in split_words(answer.text)]
        stop = STOP_REASONS[answer.stop]
    yield 0, _format_event("content_block_start", index=0, content_block=block)
    for count, (pause_s, delta) in enumerate(pieces):
        if isinstance(answer, TextAnswer) and answer.cut and count == len(pieces) // 2:
            return
        yield pause_s, _format_event("content_block_delta", index=0, delta=delta)
    yield 0, _format_event("content_block_stop", index=0)
    ended = {"stop_reason": stop, "stop_sequence": None}
    yield 0, _format_event("message_delta", delta=ended, usage={"output_tokens": OUTPUT_TOKENS})
    yield 0, _format_event("message_stop")


def build_answer(answer: TextAnswer | ToolUse, conversation: ModelConversation, number: int) -> dict[str, Any]:
    """The answer as one document."""
    if isinstance(answer, ToolUse):
        content = {"type": "tool_use", "id": f"toolu_{number}", "name": answer.tool, "input": answer.input}
    else:
        content = {"type": "text", "text": answer.text}
    usage = {"input_tokens": INPUT_TOKENS, "output_tokens": OUTPUT_TOKENS}
    stop = "tool_use" if isinstance(answer, ToolUse) else STOP_REASONS[answer.stop]
    message = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": conversation.model}
    return {**message, "content": [content], "stop_reason": stop, "stop_sequence": None, "usage": usage}


ERRORS = {
    "throttled": (429, "rate_limit_error", "This request would exceed your organization's rate limit."),
    "quota": (429, "rate_limit_error", "This request would exceed your account's rate limit. Please try again later."),
    "overloaded": (529, "overloaded_error", "Overloaded"),
    "auth": (401, "authentication_error", "invalid x-api-key"),
    "credit": (400, "invalid_request_error", "Your credit balance is too low to access the Anthropic API."),
    "context": (400, "invalid_request_error", "prompt is too long: 212345 tokens > 200000 maximum"),
    "input": (400, "invalid_request_error", "messages: text content blocks must be non-empty"),
}


def build_error(answer: ErrorAnswer) -> HttpReply:
    """The error response of the service."""
    status, kind, message = ERRORS[answer.why]
    headers = {"retry-after": str(answer.after_s)} if answer.after_s else {}
    if answer.why == "quota":
        limit = {"status": "rejected", "reset": str(quota_reset_s(answer)), "representative-claim": "five_hour"}
        headers |= {f"anthropic-ratelimit-unified-{name}": value for name, value in limit.items()}
        headers |= {"anthropic-ratelimit-unified-5h-reset": limit["reset"]}
    return HttpReply(status, {"type": "error", "error": {"type": kind, "message": message}}, headers)


def _format_event(name: str, **fields: object) -> bytes:
    return format_sse({"type": name, **fields}, name)
