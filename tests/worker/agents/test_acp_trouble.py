"""Agents that do what no agent should: each turn ends in time, under a name, with no process left."""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from support.acp_bridge import Scene, nobody_is_left, scene, told
from support.servers import until

from agentq.coordinator.model.agent_events import AgentEvent
from agentq.worker.agents.acp.json_rpc import parse_message
from agentq.worker.agents.acp.updates import AcpUpdates

pytestmark = pytest.mark.full("forty bridges and agents are started")

SPEAKS = """
import json, os, sys
def say(**message): print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
def tell(kind, **about):
    say(method="session/update", params={"sessionId": "s", "update": {"sessionUpdate": kind, **about}})
def text(words): tell("agent_message_chunk", content={"type": "text", "text": words})
def heard(): return json.loads(sys.stdin.readline())
def until_prompted():
    say(id=heard()["id"], result={"protocolVersion": 1})
    say(id=heard()["id"], result={"sessionId": "s"})
    return heard()["id"]
"""
LEAVES = "say(id=number, result={'stopReason': 'end_turn'}); sys.stdin.read()"


@pytest.fixture
def stage() -> Iterator[Scene]:
    with scene() as made:
        yield made
        nobody_is_left(made.cwd)


def test_a_program_that_is_not_there_is_named(stage: Scene) -> None:
    ended = told(stage.start(["no-such-agent"]), "hello")

    assert (ended.code, ended.facts["kind"]) == (1, "startup")
    assert "no-such-agent: it cannot be started: No such file" in ended.facts["error"]


@pytest.mark.parametrize(
    ("program", "error"),
    [
        ("raise SystemExit(41)", "it exited with code 41 before it was ready"),
        ("import os; os.kill(os.getpid(), 9)", "it was killed by signal 9 before it was ready"),
        ("import os, sys; os.close(1); sys.stdin.read()", "it closed its output before it was ready"),
        ("import sys; sys.stdin.read()", "it did not answer within 0.5 s of its start"),
        ("print('welcome!'); import sys; sys.stdin.read()", "it did not answer within 0.5 s of its start"),
    ],
)
def test_an_agent_that_does_not_come_up_is_a_startup(stage: Scene, program: str, error: str) -> None:
    ended = stage.against(program, "--startup", "0.5" if "0.5" in error else "20")

    assert (ended.code, ended.facts["kind"]) == (1, "startup")
    assert error in ended.facts["error"]


@pytest.mark.parametrize(("how", "kind"), [("3", "no_result"), ("0", "no_result"), ("kill", "killed")])
def test_a_crash_in_the_middle_of_a_turn_is_told_with_what_came_before(stage: Scene, how: str, kind: str) -> None:
    ended = stage.turn(f"SAY half\nCRASH {how}")

    assert (ended.code, ended.facts["kind"]) == (1, kind)
    assert "in the middle of its turn" in ended.facts["error"]
    assert (ended.facts["session"], ended.facts["text"]) == ("talk-0", "half")


def test_garbage_between_messages_is_passed_over_and_told_three_times(stage: Scene) -> None:
    noise = r"os.write(1, b'Loading\n{\"id\":\n\xff\x00\n[1]\n7\n{}\n' * 100)"
    ended = stage.against(f"{SPEAKS}\nnumber = until_prompted(); {noise}; text('hello'); {noise}; {LEAVES}")

    assert (ended.code, ended.facts["text"]) == (0, "hello")
    assert ended.err.count("is no message") == 3


def test_a_line_of_a_hundred_megabytes_costs_no_memory_and_not_the_turn(stage: Scene) -> None:
    flood = "\n".join(
        (
            """sys.stdout.write('{"jsonrpc":"2.0","method":"session/update","params":"')""",
            "for _ in range(100): sys.stdout.write('x' * (1 << 20))",
            """print('"}', flush=True)""",
        )
    )
    peak = "text(open(f'/proc/{os.getppid()}/status').read().split('VmHWM:')[1].split()[0])"
    bridge = stage.start([sys.executable, "-c", f"{SPEAKS}\nnumber = until_prompted()\n{flood}\n{peak}\n{LEAVES}"])
    ended = told(bridge, "hello")

    assert ended.code == 0
    assert "a message has more than 16 MiB; it was passed over" in ended.err
    assert int(ended.facts["text"]) < 200 << 10


def test_an_answer_that_is_too_long_to_be_one_ends_the_turn(stage: Scene) -> None:
    flood = "sys.stdout.write('{\"id\": ' + '1' * (20 << 20)); sys.stdout.flush(); sys.stdin.read()"
    ended = stage.against(f"{SPEAKS}\nnumber = until_prompted(); text('hm'); {flood}")

    assert (ended.code, ended.facts["kind"]) == (1, "no_result")
    assert "a message has more than 16 MiB" in ended.facts["error"]


def test_a_grandchild_that_holds_the_pipe_does_not_hold_up_the_end(stage: Scene) -> None:
    held = "subprocess.Popen(['sleep', '100'], cwd='/', stderr=subprocess.DEVNULL)"
    holds = f"import subprocess; child = {held}; text(str(child.pid)); os._exit(3)"
    ended = stage.against(f"{SPEAKS}\nnumber = until_prompted(); {holds}")
    os.kill(int(ended.facts["text"]), signal.SIGKILL)

    assert (ended.code, ended.facts["kind"]) == (1, "no_result")


def test_an_agent_that_does_not_end_after_its_turn_is_ended(stage: Scene) -> None:
    stays = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(1000)"
    ended = stage.against(f"{SPEAKS}\nnumber = until_prompted(); text('x'); {LEAVES}; {stays}")

    assert ended.code == 0


def test_when_it_is_told_to_stop_the_agent_is_asked_to_cancel(stage: Scene) -> None:
    bridge = stage.start(stage.scripted())
    ended = _stopped(bridge, "HANG", "hanging")

    assert (ended.code, ended.facts["kind"]) == (143, "interrupted")
    assert len(stage.asked("cancel")) == 1


def test_an_agent_that_is_deaf_to_that_is_ended_all_the_same(stage: Scene) -> None:
    ended = _stopped(stage.start(stage.scripted()), "STUBBORN", "deaf")

    assert (ended.code, ended.facts["kind"]) == (143, "interrupted")


def test_a_stop_before_the_agent_is_up_is_heard(stage: Scene) -> None:
    program = "import sys; sys.stderr.write('up\\n'); sys.stderr.flush(); sys.stdin.read()"
    bridge = stage.start([sys.executable, "-c", program])
    assert bridge.stdin is not None
    assert bridge.stderr is not None
    bridge.stdin.write(b"hello")
    bridge.stdin.close()
    bridge.stdin = None
    assert bridge.stderr.readline() == b"up\n"
    bridge.send_signal(signal.SIGTERM)

    assert told(bridge, None).facts["kind"] == "interrupted"


def _stopped(bridge: Any, prompt: str, sign: str) -> Any:
    """What it tells when it is told to stop once it has said this."""
    bridge.stdin.write(prompt.encode())
    bridge.stdin.close()
    bridge.stdin = None
    seen = b""
    while sign.encode() not in seen:
        seen = bridge.stdout.readline()
        assert seen
    bridge.send_signal(signal.SIGTERM)
    return told(bridge, None)


def test_whoever_stops_reading_ends_it(stage: Scene) -> None:
    bridge = stage.start(stage.scripted())
    assert bridge.stdin is not None
    assert bridge.stdout is not None
    bridge.stdin.write(b"\n".join([b"SAY " + b"x" * 5000] * 2000))
    bridge.stdin.close()
    bridge.stdout.readline()
    bridge.stdout.close()
    until(lambda: bridge.poll() is not None, "the bridge to end")

    assert bridge.returncode == 1
    bridge.stderr.close()  # type: ignore[union-attr]


def test_messages_that_are_told_apart_stay_apart_and_the_last_is_the_answer() -> None:
    said = list[AgentEvent]()
    updates = AcpUpdates(said.append)
    updates.live = True
    for name, text in (("1", "Let me"), ("1", " look."), ("2", "It is done."), (None, " All of it.")):
        content = {"type": "text", "text": text}
        updates.take({"sessionUpdate": "agent_message_chunk", "messageId": name, "content": content})
    updates.flush()

    assert [doing.model_dump()["text"] for doing in said] == ["Let me look.", "It is done. All of it."]
    assert updates.answer == "It is done. All of it."


SAMPLES = (
    b'{"sessionUpdate":"tool_call","toolCallId":"a","kind":"edit","title":"x","status":"pending","rawInput":{"path":"p"}}',
    b'{"sessionUpdate":"tool_call_update","toolCallId":"a","status":"completed","content":[{"type":"diff","path":"p"}]}',
    b'{"sessionUpdate":"plan","entries":[{"content":"a","status":"done"},{"content":"\\ud83d","status":"pending"}]}',
    b'{"sessionUpdate":"usage_update","used":1,"size":2,"cost":{"amount":1e999,"currency":"USD"}}',
    b'{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"a\\ud83d\\u0000b"}}',
    b'{"sessionUpdate":"something_new","about":{"deep":[1,2,{"deeper":null}]},"number":NaN}',
)


@pytest.mark.parametrize("seed", range(20))
def test_no_update_can_break_the_reader(seed: int) -> None:
    """Whatever is told in return can be written as UTF-8."""
    chance, said = random.Random(seed), list[AgentEvent]()
    updates = AcpUpdates(said.append)
    updates.live = True
    for _ in range(500):
        sample = bytearray(chance.choice(SAMPLES))
        for _ in range(chance.randrange(4)):
            at = chance.randrange(len(sample))
            sample[at : at + chance.randrange(8)] = chance.choice((b"", b"null", b"[]", b"{}", b"7", b'"', b"\xff"))
        updates.take(parse_message(bytes(sample)))
    updates.flush()

    assert said
    for doing in said:
        assert doing.model_dump_json()
