"""Parses Cursor's tool calls: each is an object under its own name, as in `{"editToolCall": {"args": …}}`."""

from __future__ import annotations

from agentq.worker.agents.formats.safe_values import Record, get_record, get_text

_TOOL_NAMES = {"shell": "Bash", "edit": "Edit", "write": "Write", "read": "Read"}


def parse_tool_call(call: Record) -> tuple[str, Record, Record]:
    """The tool's name as Claude has it, its input, and how it ended, as far as known."""
    for name, details in call.items():
        if isinstance(details, dict) and name.endswith("ToolCall"):
            short = name.removesuffix("ToolCall")
            return _TOOL_NAMES.get(short, short), get_record(details, "args"), get_record(details, "result")
    function = get_record(call, "function")
    return get_text(function, "name"), {"arguments": get_text(function, "arguments")}, {}
