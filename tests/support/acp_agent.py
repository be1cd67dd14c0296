"""An agent that speaks the protocol by its reference library, and does what its prompt says, a word a line:

SAY text · THINK text · PLAN item · TOOL kind path · ASK kind path · COST dollars · TOKENS read cached written ·
STOP reason · ERROR code text · CRASH code · ONCE code (a crash that does not come again) · HANG · STUBBORN (deaf to
being cancelled) · FS path.

`--able load,resume,fork,models,modes,auth` says what it can do, and `--log FILE` where it notes what it was asked.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import acp
from acp import schema

MODES = ("default", "plan", "full-access")


class ScriptedAgent:
    """See above. Conversations are kept in a folder, so that another process knows them."""

    def __init__(self, able: set[str], log: Path | None, kept: Path) -> None:
        self.able, self.log, self.kept = able, log, kept
        self.client: Any = None
        self.cancelled = asyncio.Event()
        self.logged_in = False

    def on_connect(self, conn: Any) -> None:
        self.client = conn

    def note(self, **about: Any) -> None:
        if self.log is not None:
            with self.log.open("a") as file:
                file.write(json.dumps(about) + "\n")

    async def initialize(self, protocol_version: int, **about: Any) -> Any:
        capabilities = about["client_capabilities"]
        self.note(method="initialize", version=protocol_version, fs=capabilities.fs.write_text_file)
        self.note(method="terminal", terminal=capabilities.terminal)
        sessions = schema.SessionCapabilities(
            resume=schema.SessionResumeCapabilities() if self.able & {"resume", "says-resume"} else None,
            fork=schema.SessionForkCapabilities() if "fork" in self.able else None,
        )
        version = 2 if "version2" in self.able else protocol_version
        able = schema.AgentCapabilities(load_session="load" in self.able, session_capabilities=sessions)
        ways: list[Any] = [
            schema.AuthMethodAgent(id="stand-in-key", name="a key"),
            schema.AuthMethodAgent(id="web", name="web"),
        ]
        return schema.InitializeResponse(protocol_version=version, agent_capabilities=able, auth_methods=ways)

    async def authenticate(self, method_id: str, **_: Any) -> None:
        self.note(method="authenticate", id=method_id)
        self.logged_in = True

    def _opened(self, made: Any, id_: str, **about: Any) -> Any:
        if "auth" in self.able and not self.logged_in:
            raise acp.RequestError.auth_required()
        self.note(id=id_, **about)
        (self.kept / id_).touch()
        modes = None
        if "modes" in self.able:
            known = [schema.SessionMode(id=mode, name=mode) for mode in MODES]
            modes = schema.SessionModeState(current_mode_id="plan", available_modes=known)
        options = None
        if "models" in self.able:
            values = [schema.SessionConfigSelectOption(name=name, value=name) for name in ("small", "large")]
            options = [
                schema.SessionConfigOptionSelect(
                    id="m", name="Model", category="model", type="select", current_value="small", options=values
                )
            ]
        return made(
            modes=modes, config_options=options, **({"session_id": id_} if "session_id" in made.model_fields else {})
        )

    async def new_session(self, cwd: str, mcp_servers: Any = None, **_: Any) -> Any:
        return self._opened(
            schema.NewSessionResponse, f"talk-{len(list(self.kept.iterdir()))}", method="new", cwd=cwd, mcp=mcp_servers
        )

    async def load_session(self, session_id: str, **_: Any) -> Any:
        if not (self.kept / session_id).exists():
            raise acp.RequestError.internal_error()
        await self.say("what was said before", session_id)
        if (self.kept / session_id).read_text():
            await self.spent(0, session_id)
        return self._opened(schema.LoadSessionResponse, session_id, method="load")

    async def resume_session(self, session_id: str, **_: Any) -> Any:
        return self._opened(schema.ResumeSessionResponse, session_id, method="resume")

    async def fork_session(self, session_id: str, **_: Any) -> Any:
        return self._opened(schema.ForkSessionResponse, f"{session_id}-fork", method="fork")

    async def set_config_option(self, config_id: str, value: Any, **_: Any) -> Any:
        self.note(method="option", id=config_id, value=value)
        return schema.SetSessionConfigOptionResponse(config_options=[])

    async def set_session_mode(self, mode_id: str, **_: Any) -> Any:
        self.note(method="mode", id=mode_id)
        return schema.SetSessionModeResponse()

    async def cancel(self, session_id: str, **_: Any) -> None:
        self.note(method="cancel", id=session_id)
        self.cancelled.set()

    async def prompt(self, session_id: str, prompt: list[Any], **_: Any) -> Any:
        usage = None
        for line in prompt[0].text.splitlines():
            word, _, rest = line.partition(" ")
            if word == "TOKENS":
                read, cached, written = map(int, rest.split())
                usage = schema.Usage(
                    total_tokens=read + cached + written,
                    input_tokens=read,
                    cached_read_tokens=cached,
                    output_tokens=written,
                )
                continue
            done = await getattr(self, f"do_{word.lower()}", self.do_say)(rest if word.isupper() else line, session_id)
            if done is not None:
                return schema.PromptResponse(stop_reason=done, usage=usage)
        return schema.PromptResponse(stop_reason="end_turn", usage=usage)

    # ---- what a prompt can say

    async def say(self, text: str, id_: str) -> None:
        for piece in (text[: len(text) // 2], text[len(text) // 2 :]):
            await self.client.session_update(session_id=id_, update=acp.update_agent_message_text(piece))

    async def spent(self, dollars: float, id_: str) -> None:
        total = dollars + float((self.kept / id_).read_text() or 0)
        (self.kept / id_).write_text(str(total))
        cost = schema.Cost(amount=total, currency="USD")
        about = schema.UsageUpdate(used=10, size=100, cost=cost, session_update="usage_update")
        await self.client.session_update(session_id=id_, update=about)

    async def do_say(self, text: str, id_: str) -> None:
        await self.say(text, id_)

    async def do_think(self, text: str, id_: str) -> None:
        await self.client.session_update(session_id=id_, update=acp.update_agent_thought_text(text))

    async def do_plan(self, text: str, id_: str) -> None:
        entries = [acp.plan_entry(text, status="in_progress"), acp.plan_entry("then rest")]
        await self.client.session_update(session_id=id_, update=acp.update_plan(entries))

    async def do_tool(self, rest: str, id_: str) -> None:
        kind, _, path = rest.partition(" ")
        start = acp.start_tool_call("t1", f"Use {path}", kind=kind, status="pending")  # type: ignore[arg-type]
        await self.client.session_update(session_id=id_, update=start)
        going = acp.update_tool_call("t1", status="in_progress", raw_input={"path": path})
        await self.client.session_update(session_id=id_, update=going)
        content = [acp.tool_diff_content(path, "new")] if kind == "edit" else []
        words = acp.tool_content(acp.text_block("all is well"))
        done = acp.update_tool_call("t1", status="completed", content=[*content, words])
        await self.client.session_update(session_id=id_, update=done)

    async def do_ask(self, rest: str, id_: str) -> None:
        kind: Any
        kind, _, path = rest.partition(" ")
        options = [
            schema.PermissionOption(option_id="always", name="Always", kind="allow_always"),
            schema.PermissionOption(option_id="once", name="Once", kind="allow_once"),
            schema.PermissionOption(option_id="no", name="No", kind="reject_once"),
        ]
        if "only-always" in self.able:
            del options[1]
        call = schema.ToolCallUpdate(
            tool_call_id="a1", kind=kind, title=f"{kind} {path}", raw_input={"file_path": path} if path else None
        )
        answer = await self.client.request_permission(session_id=id_, tool_call=call, options=options)
        chosen = getattr(answer.outcome, "option_id", "none")
        self.note(method="permission", kind=kind, path=path, chosen=chosen)
        await self.say(f"chose {chosen}", id_)

    async def do_fs(self, rest: str, id_: str) -> None:
        try:
            await self.client.write_text_file(session_id=id_, path=rest, content="x")
        except acp.RequestError as error:
            await self.say(f"refused {error.code}", id_)

    async def do_cost(self, rest: str, id_: str) -> None:
        await self.spent(float(rest), id_)

    async def do_stop(self, rest: str, _: str) -> str:
        return rest

    async def do_error(self, rest: str, _: str) -> None:
        code, _, text = rest.partition(" ")
        raise acp.RequestError(int(code), text, {"details": "more of it"})

    async def do_crash(self, rest: str, _: str) -> None:
        if rest == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        os._exit(int(rest))

    async def do_once(self, rest: str, id_: str) -> None:
        crashed = self.kept.with_name("crashed")
        if not crashed.exists():
            crashed.touch()
            await self.do_crash(rest, id_)

    async def do_hang(self, _: str, id_: str) -> str:
        await self.say("hanging", id_)
        await self.client.session_update(session_id=id_, update=acp.update_agent_thought_text("on"))
        await self.cancelled.wait()
        return "cancelled"

    async def do_stubborn(self, _: str, id_: str) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        await self.do_think("deaf", id_)
        await self.do_plan("deaf", id_)
        await asyncio.Event().wait()


async def main() -> None:
    """Speak on stdin and stdout until they end."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--able", default="")
    parser.add_argument("--log", type=Path)
    parser.add_argument("--kept", type=Path, required=True)
    known = parser.parse_args()
    able = set(known.able.split(","))
    agent = ScriptedAgent(able, known.log, known.kept)
    await acp.run_agent(agent, use_unstable_protocol="resume" in able or "fork" in able)  # type: ignore[arg-type]


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
