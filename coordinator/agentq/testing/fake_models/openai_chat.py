"""OpenAI's older API, which many services copy: POST /v1/chat/completions, streamed or whole."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from agentq.testing.fake_models import openai_responses
from agentq.testing.fake_models.messages import (
    ChatMessage,
    HttpReply,
    extract_prompts,
    format_sse,
    message_text,
    split_words,
)
from agentq.testing.fake_models.scenarios import ErrorAnswer, ModelConversation, TextAnswer, ToolUse

USAGE = {
    "prompt_tokens": 1000,
    "completion_tokens": 100,
    "total_tokens": 1100,
    "prompt_tokens_details": {"cached_tokens": 400},
}
FINISH_REASONS = {"end": "stop", "refusal": "content_filter", "length": "length"}


def parse_conversation(body: dict[str, Any]) -> ModelConversation:
    """Parse a request."""
    messages = body.get("messages", [])
    chat_messages = [
        ChatMessage(each["role"] == "user", message_text(each.get("content")), int(each["role"] == "tool"))
        for each in messages
    ]
    prompts, done = extract_prompts(chat_messages)
    tools = tuple(tool.get("function", {}).get("name", "") for tool in body.get("tools") or [])
    system = "\n".join(
        message_text(each.get("content")) for each in messages if each["role"] in ("system", "developer")
    )
    return ModelConversation(prompts, done, tools, system, str(body.get("model")))


def stream_answer(
    answer: TextAnswer | ToolUse, conversation: ModelConversation, number: int
) -> Iterator[tuple[float, bytes]]:
    """The pieces of a streamed answer, each with the seconds to wait before it."""
    head = {"id": f"chatcmpl-{number}", "object": "chat.completion.chunk", "created": 0, "model": conversation.model}

    def chunk(delta: dict[str, Any], finish: str | None = None, **fields: object) -> bytes:
        return format_sse({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **fields})

    yield 0, chunk({"role": "assistant", "content": ""})
    if isinstance(answer, ToolUse):
        yield 0, chunk({"tool_calls": [{"index": 0, **_tool_call(answer, number)}]})
    else:
        words = split_words(answer.text)
        for count, word in enumerate(words):
            if answer.cut and count == len(words) // 2:
                return
            yield answer.pause_s, chunk({"content": word})
    yield 0, chunk({}, "tool_calls" if isinstance(answer, ToolUse) else FINISH_REASONS[answer.stop])
    yield 0, format_sse({**head, "choices": [], "usage": USAGE})
    yield 0, b"data: [DONE]\n\n"


def build_answer(answer: TextAnswer | ToolUse, conversation: ModelConversation, number: int) -> dict[str, Any]:
    """The answer as one document."""
    message: dict[str, Any] = {"role": "assistant", "content": None}
    if isinstance(answer, ToolUse):
        message["tool_calls"] = [_tool_call(answer, number)]
        finish = "tool_calls"
    else:
        message["content"] = answer.text
        finish = FINISH_REASONS[answer.stop]
    choice = {"index": 0, "message": message, "finish_reason": finish}
    head = {"id": f"chatcmpl-{number}", "object": "chat.completion", "created": 0, "model": conversation.model}
    return {**head, "choices": [choice], "usage": USAGE}


def _tool_call(answer: ToolUse, number: int) -> dict[str, Any]:
    function = {"name": answer.tool, "arguments": json.dumps(answer.input)}
    return {"id": f"call_{number}", "type": "function", "function": function}


def build_error(answer: ErrorAnswer) -> HttpReply:
    """The error response of the service; the same as in the newer API."""
    return openai_responses.build_error(answer)
