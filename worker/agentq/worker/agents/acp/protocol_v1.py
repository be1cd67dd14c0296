"""Version 1 of the Agent Client Protocol: requests to an agent. Only this file and `updates.py` know its words.

Of what a client may offer, files and terminals, agentq offers nothing: an agent has tools of its own, and these run
under the limits of the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from agentq.coordinator.package_version import installed_version
from agentq.worker.agents.acp.json_rpc import METHOD_NOT_FOUND, RpcError, RpcProcess
from agentq.worker.agents.acp.permissions import Permissions
from agentq.worker.agents.verdicts import VerdictKind

PROTOCOL_VERSION = 1
AUTH_REQUIRED = -32000
UPDATE_METHOD, PERMISSION_METHOD = "session/update", "session/request_permission"

PERMISSION_MODES: Mapping[Permissions, tuple[str, ...]] = {
    "read": ("read-only", "default", "ask", "plan"),
    "edit": ("default", "auto", "ask"),
    "full": ("full-access",),
}
"""The modes that an agent is put into, if it has one: the first in which it does no more than allowed, or asks before.
An agent without any stays in its default mode.
"""

STOP_REASONS: Mapping[str, tuple[VerdictKind | None, str]] = {
    "end_turn": (None, ""),
    "max_tokens": (VerdictKind.BUDGET, "it used all the tokens that it may use in a turn"),
    "max_turn_requests": (VerdictKind.MAX_TURNS, "it asked its model as often as it may in a turn"),
    "refusal": (VerdictKind.REFUSED, "the model declined to go on"),
    "cancelled": (VerdictKind.INTERRUPTED, "its turn was cancelled"),
}

Message = dict[str, Any]


class TurnRefused(Exception):
    """The agent cannot do this turn; has the verdict and the reason."""

    def __init__(self, kind: VerdictKind, why: str) -> None:
        super().__init__(why)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class ConversationRequest:
    """How to open a conversation."""

    cwd: str
    resume: str | None = None
    fork: str | None = None
    model: str | None = None
    permissions: Permissions = "edit"


@dataclass(frozen=True, slots=True)
class AcpConversation:
    """An open conversation."""

    id: str
    model: str | None


async def open_conversation(
    child: RpcProcess, request: ConversationRequest, env: Mapping[str, str], timeout_s: float
) -> AcpConversation:
    """Initialize the agent and open the conversation."""
    hello = await child.request(
        "initialize",
        {
            "protocolVersion": PROTOCOL_VERSION,
            "clientCapabilities": {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False},
            "clientInfo": {"name": "agentq", "version": installed_version()},
        },
        timeout_s,
    )
    if hello.get("protocolVersion") != PROTOCOL_VERSION:
        spoken = hello.get("protocolVersion")
        raise TurnRefused(
            VerdictKind.STARTUP, f"it speaks version {spoken} of its protocol, and agentq version {PROTOCOL_VERSION}"
        )
    state = await _request_session(child, hello, request, env, timeout_s)
    id_ = state.get("sessionId") or request.resume
    if not isinstance(id_, str):
        raise TurnRefused(VerdictKind.STARTUP, "it gave the conversation no id")
    model = await _set_model(child, id_, state, request.model)
    await _set_mode(child, id_, state, request.permissions)
    return AcpConversation(id_, model)


async def send_prompt(child: RpcProcess, conversation: AcpConversation, prompt: str) -> Message:
    """Send the prompt and wait for the end of the turn."""
    text = {"type": "text", "text": prompt}
    return await child.request("session/prompt", {"sessionId": conversation.id, "prompt": [text]})


async def cancel_turn(child: RpcProcess, conversation: AcpConversation) -> None:
    """Ask the agent to end its turn; `send_prompt` returns when it has."""
    await child.notify("session/cancel", {"sessionId": conversation.id})


def choose_permission_option(params: Message, *, allow: bool, always: bool) -> Message | None:
    """The narrowest option that expresses the decision; None if none may be chosen. What is allowed `always` is never
    asked again, whatever it is about; only a run with full permissions chooses that.
    """
    kinds = ("allow_once", *(("allow_always",) if always else ())) if allow else ("reject_once", "reject_always")
    for kind in kinds:
        for option in _get_list(params, "options"):
            if option.get("kind") == kind:
                return {"outcome": {"outcome": "selected", "optionId": option.get("optionId")}}
    return None if allow else {"outcome": {"outcome": "cancelled"}}


def classify_error(error: RpcError) -> VerdictKind:
    """What an error means. Agents put the HTTP status in its code, or beside it."""
    if error.code == AUTH_REQUIRED:
        return VerdictKind.AUTH
    more = error.more if isinstance(error.more, dict) else {}
    told_of = [error.code, *(more.get(name) for name in STATUS_FIELDS)]
    status = next((one for one in told_of if isinstance(one, int) and one >= 400), 0)
    if status in (401, 403):
        return VerdictKind.AUTH
    if status == 402:
        return VerdictKind.CREDIT
    return VerdictKind.THROTTLED if status == 429 or 500 <= status < 600 else VerdictKind.AGENT_ERROR


STATUS_FIELDS = ("statusCode", "status", "httpStatus", "http_status")


def format_error(error: RpcError) -> str:
    """The error's own text, with details if there are any."""
    more = error.more if isinstance(error.more, dict) else {"details": error.more}
    details = next((str(more[name]) for name in ("details", "message", "error") if more.get(name)), "")
    return f"{error}: {details}" if details and details not in str(error) else str(error)


# ---- opening


async def _request_session(
    child: RpcProcess, hello: Message, request: ConversationRequest, env: Mapping[str, str], timeout_s: float
) -> Message:
    """Open the conversation; logs in between if the environment has what that takes."""
    methods, earlier = _list_openings(hello, request)
    # No servers of tools are passed: those of the repository are not ours to trust, the user's the agent knows itself.
    params: Message = {"cwd": request.cwd, "mcpServers": []} | ({"sessionId": earlier} if earlier else {})
    login = _find_login(hello, env)
    while True:
        try:
            return await child.request(methods[0], params, timeout_s)
        except RpcError as error:
            if error.code == METHOD_NOT_FOUND and methods[1:]:
                methods = methods[1:]
            elif error.code == AUTH_REQUIRED and login is not None:
                await _log_in(child, login, timeout_s)
                login = None
            else:
                raise _build_refusal(error, hello, earlier) from error


async def _log_in(child: RpcProcess, login: str, timeout_s: float) -> None:
    try:
        await child.request("authenticate", {"methodId": login}, timeout_s)
    except RpcError as error:
        raise TurnRefused(VerdictKind.AUTH, f"it does not log in by {login}: {format_error(error)}") from error


def _list_openings(hello: Message, request: ConversationRequest) -> tuple[list[str], str | None]:
    """The methods that can open the conversation, the best first."""
    able = _get_object(hello, "agentCapabilities")
    of_sessions = _get_object(able, "sessionCapabilities")
    if request.fork is not None:
        if of_sessions.get("fork") is None:
            raise TurnRefused(VerdictKind.NO_SESSION, "it cannot go on from a conversation as another one")
        return ["session/fork"], request.fork
    if request.resume is None:
        return ["session/new"], None
    # To resume is to load without being told all of it again. Some say that they can, and then do not know the word.
    ways = ["session/resume"] if of_sessions.get("resume") is not None else []
    ways += ["session/load"] if able.get("loadSession") else []
    if not ways:
        raise TurnRefused(VerdictKind.NO_SESSION, "it cannot go on with a conversation")
    return ways, request.resume


def _find_login(hello: Message, env: Mapping[str, str]) -> str | None:
    """A login method whose variables are all in the environment; others need a person."""
    for method in _get_list(hello, "authMethods"):
        id_ = str(method.get("id"))
        named = [str(one.get("name")) for one in _get_list(method, "vars") if not one.get("optional")]
        needed = named or [id_.upper().replace("-", "_")]
        if all(env.get(name) for name in needed):
            return id_
    return None


def _build_refusal(error: RpcError, hello: Message, earlier: str | None) -> TurnRefused:
    kind = classify_error(error)
    if kind is VerdictKind.AUTH:
        ways = ", ".join(str(one.get("name") or one.get("id")) for one in _get_list(hello, "authMethods"))
        return TurnRefused(
            kind, f"nobody is logged in there ({format_error(error)}); it offers: {ways or 'no way to log in'}"
        )
    if earlier is not None and kind is VerdictKind.AGENT_ERROR:
        return TurnRefused(
            VerdictKind.NO_SESSION, f"it cannot go on with conversation {earlier}: {format_error(error)}"
        )
    return TurnRefused(kind, f"it opened no conversation: {format_error(error)}")


async def _set_model(child: RpcProcess, id_: str, state: Message, request: str | None) -> str | None:
    """Choose the requested model; returns the model in use, if reported."""
    option = next((one for one in _get_list(state, "configOptions") if one.get("category") == "model"), None)
    models = _get_object(state, "models")  # how it was told before there were options
    current = (option or {}).get("currentValue") or models.get("currentModelId")
    if request is None or request == current:
        return current if isinstance(current, str) else None
    known = [str(one.get("modelId")) for one in _get_list(models, "availableModels")]
    if option is not None:
        known = list(_list_option_values(option.get("options")))
    if request not in known:
        raise TurnRefused(
            VerdictKind.INPUT, f"it has no model {request}; it has: {', '.join(known[:20]) or 'none to choose'}"
        )
    if option is not None:
        about = {"sessionId": id_, "configId": option.get("id"), "value": request, "type": "select"}
        await child.request("session/set_config_option", about)
    else:
        await child.request("session/set_model", {"sessionId": id_, "modelId": request})
    return request


async def _set_mode(child: RpcProcess, id_: str, state: Message, permissions: Permissions) -> None:
    modes = _get_object(state, "modes")
    has = [one.get("id") for one in _get_list(modes, "availableModes")]
    mode = next((mode for mode in PERMISSION_MODES[permissions] if mode in has), None)
    if mode is not None and mode != modes.get("currentModeId"):
        await child.request("session/set_mode", {"sessionId": id_, "modeId": mode})


def _list_option_values(options: object) -> Iterable[str]:
    for one in options if isinstance(options, list) else ():
        if isinstance(one, dict) and isinstance(one.get("options"), list):
            yield from _list_option_values(one["options"])
        elif isinstance(one, dict):
            yield str(one.get("value"))


def _get_object(message: Message, name: str) -> Message:
    part = message.get(name)
    return part if isinstance(part, dict) else {}


def _get_list(message: Message, name: str) -> list[Message]:
    parts = message.get(name)
    return [one for one in parts if isinstance(one, dict)] if isinstance(parts, list) else []
