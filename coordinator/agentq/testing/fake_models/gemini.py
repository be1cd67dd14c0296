"""Google's API: POST /v1beta/models/MODEL:streamGenerateContent, and :generateContent."""

from __future__ import annotations

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
from agentq.testing.fake_models.scenarios import ErrorAnswer, ModelConversation, TextAnswer, ToolUse

USAGE = {
    "promptTokenCount": 1000,
    "cachedContentTokenCount": 400,
    "candidatesTokenCount": 100,
    "totalTokenCount": 1100,
}
FINISH_REASONS = {"end": "STOP", "refusal": "SAFETY", "length": "MAX_TOKENS"}


def parse_conversation(body: dict[str, Any]) -> ModelConversation:
    """Parse a request. The caller adds the model, which is in the path."""
    messages = []
    for content in body.get("contents", []):
        parts = content.get("parts", [])
        results = sum("functionResponse" in part for part in parts)
        messages.append(ChatMessage(content.get("role", "user") == "user", message_text(parts), results))
    prompts, done = extract_prompts(messages)
    offered = [each for tool in body.get("tools") or [] for each in tool.get("functionDeclarations", [])]
    system = message_text((body.get("systemInstruction") or {}).get("parts", []))
    return ModelConversation(prompts, done, tuple(each["name"] for each in offered), system, str(body.get("model")))


def stream_answer(
    answer: TextAnswer | ToolUse, conversation: ModelConversation, number: int
) -> Iterator[tuple[float, bytes]]:
    """The pieces of a streamed answer, each with the seconds to wait before it."""
    if isinstance(answer, TextAnswer):
        words = split_words(answer.text)
        for count, word in enumerate(words[:-1]):
            if answer.cut and count == len(words) // 2:
                return
            yield answer.pause_s, format_sse(_candidate({"text": word}))
        yield (
            answer.pause_s,
            format_sse({**_candidate({"text": words[-1]}, FINISH_REASONS[answer.stop]), "usageMetadata": USAGE}),
        )
        return
    yield 0, format_sse(build_answer(answer, conversation, number))


def build_answer(answer: TextAnswer | ToolUse, _talk: ModelConversation, _number: int) -> dict[str, Any]:
    """The answer as one document."""
    if isinstance(answer, ToolUse):
        part: dict[str, Any] = {"functionCall": {"name": answer.tool, "args": answer.input}}
    else:
        part = {"text": answer.text}
    stop = FINISH_REASONS[answer.stop] if isinstance(answer, TextAnswer) else "STOP"
    return {**_candidate(part, stop), "usageMetadata": USAGE}


def _candidate(part: dict[str, Any], stop: str | None = None) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": [part]}, "index": 0}
    return {"candidates": [candidate | ({"finishReason": stop} if stop else {})]}


ERRORS = {
    "throttled": (429, "RESOURCE_EXHAUSTED", "Resource has been exhausted (e.g. check quota)."),
    "quota": (429, "RESOURCE_EXHAUSTED", "You exceeded your current quota, please check your plan and billing."),
    "overloaded": (503, "UNAVAILABLE", "The model is overloaded. Please try again later."),
    "auth": (401, "UNAUTHENTICATED", "API key not valid. Please pass a valid API key."),
    "credit": (403, "PERMISSION_DENIED", "This API method requires billing to be enabled."),
    "context": (400, "INVALID_ARGUMENT", "The input token count exceeds the maximum number of tokens allowed."),
    "input": (400, "INVALID_ARGUMENT", "Request contains an invalid argument."),
}  # fmt: skip


def build_error(answer: ErrorAnswer) -> HttpReply:
    """The error response of the service."""
    status, kind, message = ERRORS[answer.why]
    error: dict[str, Any] = {"code": status, "status": kind, "message": message}
    if answer.after_s:
        delay = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{answer.after_s}s"}
        error["details"] = [delay]
    return HttpReply(status, {"error": error})
