"""What Cursor calls its tools: each is an object under its own name, as in `{"editToolCall": {"args": …}}`."""

from __future__ import annotations

from agentq.worker.agents.formats.values import Record, record_of, text_of

_NAMES = {"shell": "Bash", "edit": "Edit", "write": "Write", "read": "Read"}


def tool_of(call: Record) -> tuple[str, Record, Record]:
    """The tool's name as Claude has it, what it was given, and how it ended, as far as that is known."""
    for name, told in call.items():
        if isinstance(told, dict) and name.endswith("ToolCall"):
            short = name.removesuffix("ToolCall")
            return _NAMES.get(short, short), record_of(told, "args"), record_of(told, "result")
    function = record_of(call, "function")
    return text_of(function, "name"), {"arguments": text_of(function, "arguments")}, {}
