"""Reads what an agent printed as an attempt would: line by line, to the end, and to a verdict."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from agentq.coordinator.model.agent_events import AgentEvent, parse_agent_event
from agentq.worker.agents.formats.registry import create_reader
from agentq.worker.agents.reader import AgentFacts, PriorConversation
from agentq.worker.agents.verdict_rules import AgentEnd, judge_end
from agentq.worker.agents.verdicts import Verdict

CAPTURED = Path(__file__).parent.parent / "agents" / "lines"
"""What the real programs printed."""
ENDS: dict[str, dict[str, Any]] = json.loads((CAPTURED / "ends.json").read_text(encoding="utf-8"))
NOW_MS = 1_795_046_183_000
"""When they did: on a Wednesday in November, a few minutes before midnight, in UTC."""
D = TypeVar("D", bound=AgentEvent)


@dataclass
class Reading:
    """What was understood."""

    agent_events: list[AgentEvent]
    facts: AgentFacts

    def of(self, kind: type[D]) -> list[D]:
        return [doing for doing in self.agent_events if isinstance(doing, kind)]

    @property
    def types(self) -> list[str]:
        return [json.loads(doing.model_dump_json())["type"] for doing in self.agent_events]

    def judged(self, exit_code: int | None = 0, **end: Any) -> Verdict:
        signal = -exit_code if exit_code is not None and exit_code < 0 else None
        return judge_end(
            self.facts, AgentEnd(exit_code=None if signal else exit_code, signal=signal, now_ms=NOW_MS, **end)
        )


def read(
    format_: str,
    lines: Iterable[str | dict[str, Any]],
    errors: Iterable[str] = (),
    before: PriorConversation | None = None,
) -> Reading:
    """Each doing goes to the log and back on its way."""
    reader = create_reader(format_, before or PriorConversation())
    agent_events: list[AgentEvent] = []
    for error in errors:
        agent_events += [parse_agent_event(doing.model_dump_json()) for doing in reader.read_error(error)]
    for line in lines:
        told = reader.read(line if isinstance(line, str) else json.dumps(line))
        agent_events += [parse_agent_event(doing.model_dump_json()) for doing in told]
    reader.finish()
    return Reading(agent_events, reader.facts)


def captured(name: str, before: PriorConversation | None = None) -> Reading:
    """What was understood of a real program's output."""
    lines = (CAPTURED / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return read(name.partition("-")[0], lines, ENDS[name]["stderr"].splitlines(), before)
