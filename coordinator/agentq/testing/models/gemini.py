"""Google's dialect: POST /v1beta/models/MODEL:streamGenerateContent, and :generateContent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from agentq.testing.models.dialect import Reply, Said, event, joined, newest_prompts, text_of
from agentq.testing.models.scenarios import Conversation, Refusal, Use, Words

USAGE = {
    "promptTokenCount": 1000,
    "cachedContentTokenCount": 400,
    "candidatesTokenCount": 100,
    "totalTokenCount": 1100,
}
STOPS = {"end": "STOP", "refusal": "SAFETY", "length": "MAX_TOKENS"}


def conversation(body: dict[str, Any]) -> Conversation:
    """What was sent. The model is in the path; whoever has read that puts it here."""
    said = []
    for content in body.get("contents", []):
        parts = content.get("parts", [])
        results = sum("functionResponse" in part for part in parts)
        said.append(Said(content.get("role", "user") == "user", text_of(parts), results))
    prompts, done = newest_prompts(said)
    offered = [each for tool in body.get("tools") or [] for each in tool.get("functionDeclarations", [])]
    system = text_of((body.get("systemInstruction") or {}).get("parts", []))
    return Conversation(prompts, done, tuple(each["name"] for each in offered), system, str(body.get("model")))


def stream(answer: Words | Use, talk: Conversation, number: int) -> Iterator[tuple[float, bytes]]:
    """Seconds to wait, and what to send then."""
    if isinstance(answer, Words):
        words = joined(answer.text)
        for count, word in enumerate(words[:-1]):
            if answer.cut and count == len(words) // 2:
                return
            yield answer.pause_s, event(_content({"text": word}))
        yield answer.pause_s, event({**_content({"text": words[-1]}, STOPS[answer.stop]), "usageMetadata": USAGE})
        return
    yield 0, event(whole(answer, talk, number))


def whole(answer: Words | Use, _talk: Conversation, _number: int) -> dict[str, Any]:
    """The same at once."""
    if isinstance(answer, Use):
        part: dict[str, Any] = {"functionCall": {"name": answer.tool, "args": answer.input}}
    else:
        part = {"text": answer.text}
    stop = STOPS[answer.stop] if isinstance(answer, Words) else "STOP"
    return {**_content(part, stop), "usageMetadata": USAGE}


def _content(part: dict[str, Any], stop: str | None = None) -> dict[str, Any]:
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


def refusal(answer: Refusal) -> Reply:
    """An error, as the service tells it."""
    status, kind, message = ERRORS[answer.why]
    error: dict[str, Any] = {"code": status, "status": kind, "message": message}
    if answer.after_s:
        delay = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{answer.after_s}s"}
        error["details"] = [delay]
    return Reply(status, {"error": error})
