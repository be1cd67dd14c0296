"""Programs that wait: real workers, real processes, and a slot for somebody else meanwhile."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from support.crew import Crew
from support.servers import Server, until

from agentq.coordinator.bounds import PARKED_STATE_BYTES
from agentq.coordinator.errors import Invalid
from agentq.coordinator.model.spec import RunSpec
from agentq.coordinator.runs.run_record import RunRecord
from agentq.coordinator.runs.verbs import Claim
from agentq.coordinator.runs.wait import EndedChild, Resumption, RunWait, SignalMessage
from agentq.worker.run_api.park_request import parse_park_request
from agentq.worker.run_api.result_channel import ProgramResult, ResultChannel

_numbers = count()
CLAIM = Claim("run_" + "0" * 23, "2-abcdefghj", "default:5", "{}")
RESULT = 'cat "$AGENTQ_RESUME" > "$AGENTQ_RESULT"'


@pytest.fixture
def crew(valkey: Server, folder: Path) -> Iterator[Crew]:
    crew = Crew(valkey, folder, namespace=f"waiting-{os.getpid()}-{next(_numbers)}")
    yield crew
    crew.close()
    crew.check()


def asks(**request: object) -> str:
    """A line of shell that asks to be parked."""
    return f"printf %s '{json.dumps({'park': request})}' > \"$AGENTQ_RESULT\""


def program(first: str, then: str = RESULT) -> str:
    """A shell script that does one thing when it begins, and another when it goes on."""
    return f'if [ -z "$AGENTQ_RESUME" ]; then {first}; else {then}; fi'


def parked(crew: Crew, run: str, attempt: int = 1) -> None:
    until(
        lambda: (found := crew.records.get(run)).state == "waiting" and found.attempt == attempt, "the run to be parked"
    )


def result(crew: Crew, run: str) -> Any:
    crew.wait([run])
    found = crew.records.get(run)
    assert found.state == "completed", (found.state, found.outcome)
    assert found.outcome is not None
    return found.outcome.result


# ---- real processes


def test_a_shell_script_parks_is_signalled_and_finishes(crew: Crew) -> None:
    crew.worker(slots=1)
    run = crew.submit(program(asks(signal="go", state={"step": 2}) + "; echo parked"))
    parked(crew, run)
    other = crew.submit()
    crew.wait([other])

    crew.queue.signal(run, "go", {"how": "fast"}, by="me")

    told = result(crew, run)
    (message,) = told.pop("messages")
    assert told == {"reason": "signal", "state": {"step": 2}, "children": []}
    assert (message["name"], message["data"], message["by"]) == ("go", {"how": "fast"}, "me")
    attempts = crew.records.get(run).attempts
    assert [attempt.verb for attempt in attempts] == ["park", None]


@pytest.mark.full("takes 1 s")
def test_the_command_park_asks_for_it_in_any_program(crew: Crew) -> None:
    crew.worker(slots=1)
    run = crew.submit(program(f"{sys.executable} -m agentq.cli.main park --approval --state 7"))
    parked(crew, run)
    assert crew.records.get(run).reason == "an approval"

    crew.queue.deny(run, "not today")

    told = result(crew, run)
    assert (told["reason"], told["state"]) == ("approval", 7)
    assert told["messages"][0]["data"] == {"verdict": "denied", "comment": "not today"}


@pytest.mark.full("takes 2 s")
def test_the_time_wakes_it_without_anybody(crew: Crew) -> None:
    crew.worker(slots=1)

    assert result(crew, crew.submit(program(asks(until="50ms"))))["reason"] == "time"


FAN_OUT = f"""
agentq() {{ {sys.executable} -m agentq.cli.main "$@"; }}
if [ "$1" = 0 ]; then echo '"a leaf"' > "$AGENTQ_RESULT"; exit; fi
if [ -z "$AGENTQ_RESUME" ]; then
  for child in 1 2; do
    agentq submit --child --env-from AGENTQ_URL --env-from AGENTQ_NAMESPACE -- sh "$0" $(($1 - 1)) || exit 1
  done
  agentq park --children all
else
  {RESULT}
fi
"""


@pytest.mark.full("takes 3 s")
def test_a_nested_fan_out_on_one_slot_does_not_deadlock(crew: Crew) -> None:
    """Every run waits for the children that it submitted, and none of them holds the only slot meanwhile."""
    script = crew.folder / "fan-out.sh"
    script.write_text(FAN_OUT)
    crew.worker(slots=1)
    settings = {"AGENTQ_URL": crew.settings.url, "AGENTQ_NAMESPACE": crew.settings.namespace}
    argv = ("sh", str(script), "2")
    top = crew.queue.submit(RunSpec.checked(kind="command", argv=argv, cwd=str(crew.folder), env=settings)).id
    crew.wait([top], timeout_ms=60_000)

    told = result(crew, top)

    assert told["reason"] == "children"
    heard = [leaf for child in told["children"] for leaf in child["outcome"]["result"]["children"]]
    assert [(leaf["state"], leaf["outcome"]["result"]) for leaf in heard] == [("completed", "a leaf")] * 4


def test_parked_runs_outlive_a_worker_that_is_killed(crew: Crew) -> None:
    victim = crew.worker(slots=2)
    waiting = [crew.submit(program(asks(signal="go"))) for _ in range(4)]
    for run in waiting:
        parked(crew, run)
    victim.kill()
    victim.wait()
    for run in waiting[:2]:
        crew.queue.signal(run, "go", 1)
    crew.worker(slots=1)
    for run in waiting[2:]:
        crew.queue.signal(run, "go", 1)

    for run in waiting:
        assert [message["data"] for message in result(crew, run)["messages"]] == [1]
    found = [crew.records.get(run) for run in waiting]
    assert {(run.attempt, run.crashes) for run in found} == {(2, 0)}


@pytest.mark.full("takes 3 s")
def test_a_worker_that_is_killed_with_a_message_in_hand_leaves_it_to_the_next(crew: Crew) -> None:
    victim = crew.worker(slots=1)
    begun = crew.folder / "begun"
    last = f'if [ "$AGENTQ_ATTEMPT" = 2 ]; then : > {begun}; sleep 60; fi; {RESULT}'
    run = crew.submit(program(asks(signal="go"), last))
    parked(crew, run)
    crew.queue.signal(run, "go", "only once")
    until(begun.exists, "the second attempt to begin")
    victim.kill()
    victim.wait()
    crew.worker(slots=1)
    crew.lose(victim)

    assert [message["data"] for message in result(crew, run)["messages"]] == ["only once"]
    assert crew.records.get(run).crashes == 1


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        ("{}", "give it a signal, approval, children or until"),
        ('{"signal": "a b"}', "signals"),
        ('{"until": "soon"}', "'soon' is neither a duration"),
        ('{"sginal": "go"}', "sginal"),
        ("7", "cannot be parked"),
    ],
)
def test_a_bad_request_is_a_failed_attempt_that_says_why(crew: Crew, request_: str, why: str) -> None:
    crew.worker(slots=1)
    run = crew.submit(f'echo \'{{"park": {request_}}}\' > "$AGENTQ_RESULT"')
    crew.wait([run])

    found = crew.records.get(run)

    assert found.state == "failed"
    assert found.outcome is not None
    assert found.outcome.class_ == "check"
    assert why in (found.outcome.error or "")


def test_a_program_that_asks_and_fails_is_not_parked(crew: Crew) -> None:
    crew.worker(slots=1)
    run = crew.submit(asks(signal="go") + "; exit 3")
    crew.wait([run])

    assert ending(crew.records.get(run)) == ("failed", 3)


def ending(run: RunRecord) -> tuple[str, int | None]:
    assert run.outcome is not None
    return run.state.value, run.outcome.exit_code


# ---- what is understood


@pytest.mark.parametrize(
    ("request_", "wait"),
    [
        ({"signal": "go"}, RunWait(signals=("go",))),
        ({"signal": ["a", "b"], "state": [1]}, RunWait(signals=("a", "b"), state=[1])),
        ({"approval": True, "until": "1h30m"}, RunWait(approval=True, for_ms=5_400_000)),
        ({"children": "any"}, RunWait(children="any")),
        ({"until": "1970-01-01T00:00:01+00:00"}, RunWait(until_ms=1000)),
        ({"until": "1969-01-01T00:00:01Z"}, RunWait(until_ms=0)),
    ],
)
def test_a_request_says_what_wakes_it(request_: Any, wait: RunWait) -> None:
    assert parse_park_request(request_) == wait


@pytest.mark.parametrize(
    "request_",
    [
        *({}, [], "go", None, {"state": 1}, {"approval": False}, {"approval": "yes"}, {"children": "some"}),
        *({"signal": []}, {"signal": ""}, {"signal": 7}, {"signal": ["approval"]}, {"signal": ["a"] * 17}),
        *({"until": "-1s"}, {"until": 5}, {"until": "9999999d"}, {"until": "2030-13-01"}, {"until": ""}),
        {"signal": "go", "state": "x" * (PARKED_STATE_BYTES + 1)},
    ],
)
def test_what_is_not_understood_is_said_in_one_sentence(request_: Any) -> None:
    with pytest.raises(Invalid) as refused:
        parse_park_request(request_)

    assert str(refused.value).startswith("The program cannot be parked: ")
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 400


def test_a_result_that_only_has_park_among_others_is_a_result(folder: Path) -> None:
    channel = ResultChannel.open(folder / "channels", CLAIM)
    Path(channel.variables()["AGENTQ_RESULT"]).write_text('{"park": 1, "name": "Hyde"}')

    assert channel.result() == ProgramResult({"park": 1, "name": "Hyde"})
    channel.close()


def test_the_file_that_a_program_resumes_with_is_its_users_alone_and_goes_with_the_attempt(folder: Path) -> None:
    channel = ResultChannel.open(folder / "channels", CLAIM)
    assert "AGENTQ_RESUME" not in channel.variables()
    message = SignalMessage(id="1-0", name="go", data={"a": []}, at_ms=1_900_000_000_000, by="me")
    channel.resume(
        Resumption(
            reason="signal", state=None, messages=[message], children=[EndedChild(id="r", state="failed", outcome=None)]
        )
    )

    path = Path(channel.variables()["AGENTQ_RESUME"])

    assert path.stat().st_mode & 0o777 == 0o600
    assert json.loads(path.read_text()) == {
        "reason": "signal",
        "state": None,
        "messages": [{"id": "1-0", "name": "go", "data": {"a": []}, "at": "2030-03-17T17:46:40.000Z", "by": "me"}],
        "children": [{"id": "r", "state": "failed", "outcome": None}],
    }
    channel.close()
    assert not path.exists()
