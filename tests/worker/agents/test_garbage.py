"""Whatever a program prints, a reader neither raises nor grows, and what it says can be written."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
from support.agent_output import CAPTURED

from agentq.coordinator.errors import Invalid
from agentq.coordinator.model.agent_events import parse_agent_event
from agentq.worker.agents.formats.registry import READERS_BY_FORMAT, create_reader
from agentq.worker.agents.reader import PriorConversation
from agentq.worker.agents.verdict_rules import AgentEnd, judge_end

LINES = [line for path in sorted(CAPTURED.glob("*.jsonl")) for line in path.read_text(encoding="utf-8").splitlines()]
ODD: list[Any] = [
    *(None, True, 0, -1, 1e308, 10**40, "", "\ud800", "x" * 9_000, [], {}, [[]], [None], {"a": {"b": []}}, "🙂" * 3),
    {"type": "text", "text": 1},
]
LINES_OF_TEXT = [
    "",
    " ",
    "{",
    "{}",
    "[]",
    "null",
    '{"type":1}',
    '{"type":"result"}',
    '{"type":"assistant"}',
    '{"type":"x","a":NaN}',
    '{"type":"x","a":1e999}',
    '{"type":"x","a":"\\ud800"}',
    '{"type":"x","a":' + "9" * 6_000 + "}",
    '{"type":"x","a":' + "[" * 900 + "]" * 900 + "}",
    '{"type":"x","a":' + "[" * 100_000,
    "Tokens: , sent",
    "Tokens: 1.2.3k sent, 9,,9 received. Cost: $1.1.1 session.",
    "litellm.Error: x",
    "\x00\x1b[31m\udcff",
]


def mutants(seed: int, count: int) -> Iterator[str]:
    """Real lines, of which something is changed, moved, cut or doubled."""
    dice = random.Random(seed)
    for _ in range(count):
        line = dice.choice(LINES)
        if dice.random() < 0.2:
            cut = dice.randrange(len(line) + 1)
            yield line[:cut] + dice.choice(["", "\\", '"', "}", "\x00", "\ud800"]) + line[cut + dice.randrange(9) :]
            continue
        event = json.loads(line)
        for _ in range(dice.randrange(1, 4)):
            twist(event, dice)
        yield json.dumps(event)


def twist(value: Any, dice: random.Random) -> None:
    """Go down some way, and put something odd there."""
    while isinstance(value, dict | list) and value:
        place = dice.choice(list(value) if isinstance(value, dict) else range(len(value)))
        if not isinstance(value[place], dict | list) or not value[place] or dice.random() < 0.2:
            value[place] = copy.deepcopy(dice.choice(ODD))
            return
        value = value[place]


@pytest.mark.parametrize("format_", READERS_BY_FORMAT)
@pytest.mark.parametrize("seed", range(4))
def test_no_line_makes_a_reader_raise_or_say_what_cannot_be_written(format_: str, seed: int) -> None:
    reader = create_reader(
        format_, PriorConversation(totals={"cost_usd": 1.0, "input_tokens": 5}, prices={"": {}}, model="m")
    )
    for line in [*LINES_OF_TEXT, *mutants(seed, 400)]:
        for doing in reader.read(line):
            written = doing.model_dump_json()
            assert len(written.encode()) < 40_000
            parse_agent_event(written)
        list(reader.read_error(line))
        json.dumps(judge_end(reader.facts, AgentEnd(exit_code=1, now_ms=1)).error).encode()
    reader.finish()
    assert len(reader.facts.text) < 70_000
    assert len(reader.facts.error) < 5_000


@pytest.mark.parametrize("format_", READERS_BY_FORMAT)
def test_a_reader_keeps_no_history(format_: str) -> None:
    """Nothing that it holds grows with what it has read, but for names of tools that were not allowed."""
    reader = create_reader(format_, PriorConversation())
    calls = [
        {"type": "assistant", "message": {"id": "m", "content": [{"type": "tool_use", "id": "%d", "name": "Bash"}]}},
        {"type": "item.started", "item": {"type": "command_execution", "id": "%d", "command": "x" * 2_000}},
        {"type": "tool_use", "tool_name": "x", "tool_id": "%d", "parameters": {"a": "x" * 2_000}},
        {"type": "message", "message": {"role": "assistant", "content": [{"type": "text", "text": "x" * 2_000}]}},
        {"type": "message", "role": "assistant", "content": "x" * 2_000, "delta": True},
        {"type": "text", "sessionID": "s", "part": {"text": "x" * 2_000}},
    ]
    for number in range(2_000):
        for call in calls:
            list(reader.read(json.dumps(call).replace("%d", str(number))))

    assert len(repr(vars(reader))) < 900_000


def test_an_unknown_format_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(Invalid, match="there is no format 'yaml'; there are agentq, aider, claude"):
        create_reader("yaml", PriorConversation())
