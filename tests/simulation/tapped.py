"""The scripts as the simulator runs them: the product's text, and after it a look at what it did, in one round trip.

At times the limits on the work of one call are so tight that nearly everything takes several calls, with anything
happening in between. A test of the simulator itself plants a bug, by a patch of its own.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, NamedTuple

from agentq.coordinator.model.ids import RUN_ID_LENGTH
from agentq.coordinator.storage.connection import ScriptSource
from agentq.coordinator.storage.scripts import LuaScript, ScriptPatch, ScriptSet

TIGHT = {
    "ATTEMPTS_KEPT": 3,
    "DEPENDENTS_PER_CALL": 1,
    "RETRIED_TASKS_PER_CALL": 1,
    "TICK_PER_CALL": 2,
    "SWEEP_PER_CALL": 2,
    "WORKERS_PER_CALL": 1,
    "DROP_PER_CALL": 1,
    "LOW_PRIORITY_EVERY": 2,
    "PENDING_SIGNALS": 4,
    "CHILDREN_PER_CALL": 1,
}

_BEFORE = """
local newest_before = redis.call('XREVRANGE', base .. 'events', '+', '-', 'COUNT', 1)[1]
local function main()"""

_AFTER = f"""
local lines = {{}}
for _, name in ipairs(redis.call('KEYS', base .. 'run:run_*')) do
  if #name == #base + {len("run:") + RUN_ID_LENGTH} then
    local f = redis.call('HMGET', name, 'state', 'attempt', 'fence', 'worker')
    lines[#lines + 1] = table.concat(
      {{ string.sub(name, -{RUN_ID_LENGTH}), f[1] or '', f[2] or '0', f[3] or '', f[4] or '' }}, ' ')
  end
end
table.sort(lines)
local events = redis.call('XRANGE', base .. 'events', newest_before and '(' .. newest_before[1] or '-', '+')
return {{ reply, events, table.concat(lines, '\\n') }}"""


class Tapped(NamedTuple):
    """A script's reply, the events that it appended, and a line `id state attempt fence worker` for each run."""

    reply: Any
    events: list[Any]
    lines: str


def once(text: str, old: str, new: str) -> str:
    """Replace what must be there exactly once."""
    assert text.count(old) == 1, f"{old!r} occurs {text.count(old)} times"
    return text.replace(old, new)


class Planted(ScriptSet):
    """All scripts with a look at their ends, of which those that have a file in them are patched."""

    def __init__(self, file: str, plant: ScriptPatch, *, tight: bool = False) -> None:
        super().__init__(_patch(plant, tight=tight))
        self._file = file
        self._others = tapped(tight=tight)

    def has(self, script: LuaScript) -> bool:
        return self._file in ("prelude", "lanes", script.name, *script.header.uses)

    def source(self, script: LuaScript) -> ScriptSource:
        return super().source(script) if self.has(script) else self._others.source(script)


@cache
def tapped(*, tight: bool = False) -> ScriptSet:
    """All scripts, each with a look at its end."""
    return ScriptSet(_patch(tight=tight))


def _patch(plant: ScriptPatch | None = None, *, tight: bool) -> ScriptPatch:
    def patch(name: str, text: str) -> str:
        if plant is not None:
            text = plant(name, text)
        if name != "whole":
            return text
        if tight:
            text = tightened(name, text)
        assert text.endswith("\nreturn reply")
        return once(text, "\nlocal function main()", _BEFORE).removesuffix("\nreturn reply") + _AFTER

    return patch


def tightened(name: str, text: str) -> str:
    """A patch that lets a script do next to nothing in one call."""
    if name != "whole":
        return text
    text, times = re.subn(r"^local ([A-Z_]+(?:, [A-Z_]+)*) = ([0-9., ]+)$", _with_tight_limits, text, flags=re.M)
    assert times <= 1, f"the limits stand in {times} lines"
    return text


def _with_tight_limits(line: re.Match[str]) -> str:
    names, values = line[1].split(", "), line[2].split(", ")
    tight = [str(TIGHT.get(name, value)) for name, value in zip(names, values, strict=True)]
    return f"local {line[1]} = {', '.join(tight)}"
