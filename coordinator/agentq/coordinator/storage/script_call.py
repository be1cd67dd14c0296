"""One call of a script: its command, and how a server gets a script that it does not know."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from redis.exceptions import ResponseError

from agentq.coordinator.storage import server_errors
from agentq.coordinator.storage.socket_link import CommandArgument, CommandSender


@dataclass(frozen=True, slots=True)
class ScriptSource:
    """A Lua script, and the digest by which the server knows it."""

    name: str
    text: str
    sha: str

    @property
    def only_reads(self) -> bool:
        """Whether the server is told so by the first line: then a user who may only read may run it."""
        return self.text.startswith("#!lua flags=no-writes\n")


ScriptCall = tuple[ScriptSource, str, Sequence[CommandArgument]]
"""A script, the key that it belongs to, and its arguments."""


def call_script(ask: CommandSender, call: ScriptCall) -> Any:
    """Run one script and wait for its reply."""
    try:
        return ask(evalsha_command(call))
    except ResponseError as refusal:
        if server_errors.error_code(refusal) != "NOSCRIPT":
            raise
        source, key, args = call
        # EVAL runs it and remembers it in one step; nothing can be flushed between the two.
        return ask(("EVAL_RO" if source.only_reads else "EVAL", source.text, 1, key, *args))


def evalsha_command(call: ScriptCall) -> tuple[CommandArgument, ...]:
    """The words of a call to a server that knows the script already, which is nearly always so."""
    source, key, args = call
    return ("EVALSHA_RO" if source.only_reads else "EVALSHA", source.sha, 1, key, *args)
