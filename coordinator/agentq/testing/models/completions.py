"""OpenAI's older dialect, which everybody copies: POST /v1/chat/completions, streamed or whole."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from agentq.testing.models import responses
from agentq.testing.models.dialect import Reply, Said, event, joined, newest_prompts, text_of
from agentq.testing.models.scenarios import Conversation, Refusal, Use, Words

USAGE = {
    "prompt_tokens": 1000,
    "completion_tokens": 100,
    "total_tokens": 1100,
    "prompt_tokens_details": {"cached_tokens": 400},
}
STOPS = {"end": "stop", "refusal": "content_filter", "length": "length"}


def conversation(body: dict[str, Any]) -> Conversation:
    """What was sent."""
    messages = body.get("messages", [])
    said = [
        Said(each["role"] == "user", text_of(each.get("content")), int(each["role"] == "tool")) for each in messages
    ]
    prompts, done = newest_prompts(said)
    tools = tuple(tool.get("function", {}).get("name", "") for tool in body.get("tools") or [])
    system = "\n".join(text_of(each.get("content")) for each in messages if each["role"] in ("system", "developer"))
    return Conversation(prompts, done, tools, system, str(body.get("model")))


def stream(answer: Words | Use, talk: Conversation, number: int) -> Iterator[tuple[float, bytes]]:
    """Seconds to wait, and what to send then."""
    head = {"id": f"chatcmpl-{number}", "object": "chat.completion.chunk", "created": 0, "model": talk.model}

    def chunk(delta: dict[str, Any], finish: str | None = None, **fields: object) -> bytes:
        return event({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **fields})

    yield 0, chunk({"role": "assistant", "content": ""})
    if isinstance(answer, Use):
        yield 0, chunk({"tool_calls": [{"index": 0, **_call(answer, number)}]})
    else:
        words = joined(answer.text)
        for count, word in enumerate(words):
            if answer.cut and count == len(words) // 2:
                return
            yield answer.pause_s, chunk({"content": word})
    yield 0, chunk({}, "tool_calls" if isinstance(answer, Use) else STOPS[answer.stop])
    yield 0, event({**head, "choices": [], "usage": USAGE})
    yield 0, b"data: [DONE]\n\n"


def whole(answer: Words | Use, talk: Conversation, number: int) -> dict[str, Any]:
    """The same at once."""
    message: dict[str, Any] = {"role": "assistant", "content": None}
    if isinstance(answer, Use):
        message["tool_calls"] = [_call(answer, number)]
        finish = "tool_calls"
    else:
        message["content"] = answer.text
        finish = STOPS[answer.stop]
    choice = {"index": 0, "message": message, "finish_reason": finish}
    head = {"id": f"chatcmpl-{number}", "object": "chat.completion", "created": 0, "model": talk.model}
    return {**head, "choices": [choice], "usage": USAGE}


def _call(answer: Use, number: int) -> dict[str, Any]:
    function = {"name": answer.tool, "arguments": json.dumps(answer.input)}
    return {"id": f"call_{number}", "type": "function", "function": function}


def refusal(answer: Refusal) -> Reply:
    """An error, as the service tells it: the same as in the newer dialect."""
    return responses.refusal(answer)
