"""What a submit accepts and what is read back: specs, their limits, their wire form, outcomes."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from support.world import World

from agentq.coordinator import bounds
from agentq.coordinator.errors import Incompatible, Invalid
from agentq.coordinator.model.ids import new_run_id
from agentq.coordinator.model.lifecycle import OutcomeClass, State
from agentq.coordinator.model.spec import Outcome, ResourceLimits, RetryPolicy, RunSpec, parse_lane, parse_spec
from agentq.coordinator.workers.lease import WorkerIdentity, WorkerLease

COMMAND: dict[str, Any] = {"kind": "command", "argv": ["true"]}
FUNCTION: dict[str, Any] = {"kind": "function", "function": "module:name"}


def refusal(**fields: Any) -> str:
    """The sentence with which a spec is refused."""
    with pytest.raises(Invalid) as refused:
        RunSpec.checked(**fields)
    return str(refused.value)


# Limits on submit: each has its message

NAMED = "use up to 128 letters, digits and _ . @ + -, beginning with a letter or digit."
DEMANDED = (
    "name a value, up to 16 of which one will do as in a|b, values that will not do as in !=a, or the least number as"
    " in >=2.1; a value is up to 128 letters, digits and _ . @ / + -."
)
LABELLED = "use up to 128 letters, digits and _ . @ / + -, beginning with a letter or digit."
TOO_LARGE = [
    ("NAME_LENGTH", {"queue": "q" * 129}, f"queue: {NAMED}"),
    ("NAME_LENGTH", {"plan": "p" * 129}, f"plan: {NAMED}"),
    ("NAME_LENGTH", {"session": "s" * 129}, f"session: {NAMED}"),
    ("NAME_LENGTH", {"labels": {"l" * 129: "v"}}, f"labels.{'l' * 129}: {LABELLED}"),
    ("NAME_LENGTH", {"demands": {"d": "v" * 129}}, f"demands.d: {DEMANDED}"),
    ("NAME_LENGTH", {"name": "n" * 129}, "name: 128 characters are the most, not 129."),
    ("DEDUPE_KEY_LENGTH", {"dedupe_key": "k" * 513},
     "dedupe_key: 512 characters are the most, not 513."),
    ("LABELS", {"labels": {f"l{number}": "v" for number in range(65)}},
     "labels: 64 entries are the most."),
    ("DEMANDS", {"demands": {f"d{number}": "v" for number in range(17)}},
     "demands: 16 entries are the most."),
    ("PRIORITY_MAX", {"priority": 10}, "priority: it should be less than or equal to 9."),
    ("PROMPT_BYTES", {"kind": "agent", "agent": "claude", "prompt": "ä" * (2 << 20) + "a"},
     "prompt: the prompt has 4194305 bytes; 4194304 is the most."),
    ("STDIN_BYTES", {"stdin": "s" * ((4 << 20) + 1)}, "stdin: stdin has 4194305 bytes; 4194304 is the most."),
    ("ARGUMENTS_BYTES", {"argv": ["a" * (1 << 20)]}, "argv: the command line has 1048580 bytes; 1048576 is the most."),
    ("ARGUMENTS_BYTES", {**FUNCTION, "args": ["a" * (1 << 20)]},
     "args: the JSON of the arguments has 1048580 bytes; 1048576 is the most."),
    ("ARGUMENTS_BYTES", {**FUNCTION, "kwargs": {"k": "a" * (1 << 20)}},
     "kwargs: the JSON of the arguments has 1048584 bytes; 1048576 is the most."),
    ("ENVIRONMENT_BYTES", {"env": {"E": "e" * (256 << 10)}},
     "env: the environment has 262152 bytes; 262144 is the most."),
    ("RETRIES_MAX", {"retry": {"failures": 10_001}}, "retry.failures: it should be less than or equal to 10000."),
    ("DELAY_MS_MAX", {"delay_ms": bounds.DELAY_MS_MAX + 1},
     "delay_ms: it should be less than or equal to 316224000000."),
    ("DELAY_MS_MAX", {"expires_ms": bounds.DELAY_MS_MAX + 1},
     "expires_ms: it should be less than or equal to 316224000000."),
    ("DELAY_MS_MAX", {"keep_ms": bounds.DELAY_MS_MAX + 1},
     "keep_ms: it should be less than or equal to 316224000000."),
    ("DUE_AT_MS_MAX", {"due_at_ms": 10**30}, "due_at_ms: it should be less than or equal to 35184372088831."),
]  # fmt: skip


@pytest.mark.parametrize(("limit", "fields", "sentence"), TOO_LARGE, ids=[str(row[0]) for row in TOO_LARGE])
def test_what_exceeds_a_limit_is_refused_with_one_sentence_that_names_it(
    limit: str, fields: dict[str, Any], sentence: str
) -> None:
    assert refusal(**COMMAND | fields) == sentence
    assert str(getattr(bounds, limit)) in sentence


def test_what_just_fits_is_taken(world: World) -> None:
    """And comes back as it was."""
    fields = {
        "queue": "q" * 128,
        "plan": "p" * 128,
        "dedupe_key": "k" * 512,
        "labels": {f"l{number}": "v" * 128 for number in range(64)},
        "demands": {f"{number:03}" + "d" * 125: "v" * 128 for number in range(16)},
        "priority": 9,
        "stdin": "s" * (4 << 20),
        "argv": ["a" * ((1 << 20) - 4)],
        "due_at_ms": bounds.DUE_AT_MS_MAX,
        "expires_ms": bounds.DELAY_MS_MAX,
        "keep_ms": bounds.DELAY_MS_MAX,
    }
    run = world.get(world.submit(**fields))

    assert (run.state, run.due_at_ms) == (State.SCHEDULED, bounds.DUE_AT_MS_MAX)
    assert run.spec == RunSpec.checked(**COMMAND | fields)


def test_a_spec_that_is_too_large_as_a_whole_is_refused_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Today its parts together cannot be; that may change."""
    monkeypatch.setattr(bounds, "SPEC_BYTES", 10_000)
    spec = RunSpec.checked(**COMMAND | {"stdin": "s" * 10_000})

    with pytest.raises(Invalid, match=r"^The run has 100\d\d bytes; 10000 is the most. Pass large input as a file.$"):
        spec.to_wire()


@pytest.mark.parametrize(
    ("limit", "fields"),
    [
        ("ERROR_CHARACTERS", {"error": "e" * 4097}),
        ("TAIL_CHARACTERS", {"tail": "t" * 16385}),
        ("RESULT_BYTES", {"result": "r" * (1 << 20) + "r"}),
    ],
)
def test_an_outcome_has_limits_too(limit: str, fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=str(getattr(bounds, limit))):
        Outcome(**fields)


def test_progress_is_bounded(world: World) -> None:
    claim = world.held("w1")
    with world.unchanged(), pytest.raises(Invalid, match=r"^Progress has 1025 bytes; 1024 is the most.$"):
        world.queue.report(claim, 1, {"p": "x" * 1017})
    world.queue.report(claim, 1, {"p": "x" * 1016})


def test_what_a_worker_says_of_itself_is_bounded(world: World) -> None:
    with pytest.raises(Invalid, match=r"^A worker describes itself in 16384 bytes at the most.$"):
        WorkerLease(world.store, WorkerIdentity(id="w1", queues=("q",), about={"x": "x" * 16384}), world.settings)


def test_a_reason_is_cut_rather_than_refused(world: World) -> None:
    run = world.submit()
    world.queue.cancel(run, "r" * 10_000)

    outcome = world.get(run).outcome
    assert outcome is not None
    assert outcome.error == "r" * bounds.ERROR_CHARACTERS


# What is refused though it is small


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"kind": "nonsense"}, "kind: it should be 'command', 'function' or 'agent'."),
        ({"argv": []}, "a run of kind 'command' needs 'argv'."),
        ({"kind": "function"}, "a run of kind 'function' needs 'function'."),
        ({"kind": "agent", "prompt": "x"}, "a run of kind 'agent' needs 'agent'."),
        ({"kind": "agent", "agent": "claude"}, "a run of kind 'agent' needs 'prompt'."),
        ({"kind": "agent", "agent": "claude", "prompt": " \n"}, "a run of kind 'agent' needs 'prompt'."),
        ({"kind": "actor", "name": "a"}, "kind: it should be 'command', 'function' or 'agent'."),
        ({"delay_ms": 1, "due_at_ms": 1}, "give either delay_ms or due_at_ms, not both."),
        ({"argv": "ls -l"}, "argv: it has to be a list."),
        ({"argv": ["a\0b"]}, "argv.0: a NUL byte cannot be passed to a process."),
        ({"env": {"": "x"}}, "env: '' is not the name of a variable."),
        ({"env": {"A=B": "x"}}, "env: 'A=B' is not the name of a variable."),
        ({"env": {"A": "\0"}}, "env.A: a NUL byte cannot be passed to a process."),
        ({"queue": "a b"}, f"queue: {NAMED}"),
        ({"queue": "a:b"}, f"queue: {NAMED}"),
        ({"queue": "a\n"}, f"queue: {NAMED}"),
        ({"queue": ""}, f"queue: {NAMED}"),
        ({"queue": "ä"}, f"queue: {NAMED}"),
        ({"demands": {"a=b": "c"}}, f"demands.a=b: {LABELLED}"),
        ({"demands": {"a": "b,c"}}, f"demands.a: {DEMANDED}"),
        ({"priority": "5"}, "priority: it should be a whole number."),
        ({"priority": -1}, "priority: it should be greater than or equal to 0."),
        ({"delay_ms": -1}, "delay_ms: it should be greater than or equal to 0."),
        ({"dedupe_key": ""}, "dedupe_key: it needs 1 at the least, and has 0."),
        ({"retry": {"factor": float("nan")}}, "retry.factor: it should be a finite number."),
        ({"retry": {"final": ["nonsense"]}}, "retry.final.0: it should be"),
        ({"colour": "red"}, "colour: there is no such field."),
        ({"retry": {"tries": 3}}, "retry.tries: there is no such field."),
        ({"colour": "red", "priority": 10}, "priority: it should be less than or equal to 9 (1 more)."),
        ({"after": ["run_1"]}, "after.0: 'run_1' is not the id of a run; one looks like run_"),
    ],
)
def test_bad_input_is_refused_with_one_sentence(fields: dict[str, Any], sentence: str) -> None:
    assert refusal(**COMMAND | fields).startswith(sentence)


NOT_JSON = {
    "NaN": float("nan"),
    "infinity": float("inf"),
    "minus infinity": -float("inf"),
    "a huge integer": 10**4300,
    "an integer as a key": {1: 2},
    "bytes": b"x",
    "a tuple": (1,),
    "an object": object(),
}


@pytest.mark.parametrize("value", NOT_JSON.values(), ids=NOT_JSON)
def test_what_json_cannot_carry_is_refused_rather_than_changed(value: object) -> None:
    """NaN would silently become null, and an integer that Python does not read back would make the run unreadable."""
    for place in ([value], [[value]], {"k": value}):
        fields = {"kwargs" if isinstance(place, dict) else "args": place}
        assert refusal(**FUNCTION, **fields)
        with pytest.raises(ValueError, match=r"JSON|digits|valid"):
            Outcome(result=place)  # type: ignore[arg-type]


def test_what_only_looks_like_that_is_taken() -> None:
    args = ["NaN", "-Infinity", "9" * 5000, 10**4000, '\\"', "🦊", "\u2028"]

    spec = RunSpec.checked(**FUNCTION, args=args)

    assert parse_spec(spec.to_wire().decode(), spec.lane).args == tuple(args)


@pytest.mark.parametrize("field", ["prompt", "argv", "env", "args"])
def test_text_that_is_not_unicode_is_refused(field: str) -> None:
    broken = "a\udc80"
    fields: dict[str, dict[str, Any]] = {
        "prompt": {"kind": "agent", "agent": "claude", "prompt": broken},
        "argv": {"argv": [broken]},
        "env": {"env": {"A": broken}},
        "args": FUNCTION | {"args": [broken]},
    }
    assert "surrogates not allowed" in refusal(**COMMAND | fields[field])


def test_nesting_without_end_is_refused_and_the_complaint_has_an_end() -> None:
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]

    assert (
        refusal(**FUNCTION, args=deep) == "args.0.list.0.list.0: Recursion error - maximum validation depth exceeded."
    )


# The wire


def a_spec(chance: random.Random) -> RunSpec:
    """One with any of the fields."""
    fields: dict[str, Any] = {
        "name": "näme",
        "argv": ["echo", "", "a\nb", "🦊"],
        "stdin": "in\0put",
        "env": {"A": "1", "B": ""},
        "cwd": "/tmp",
        "args": [1, 2.5, None, True, {"a": [{}]}],
        "kwargs": {"k": "v"},
        "labels": {"team/a": "x"},
        "timeout_ms": 5,
        "caps": ResourceLimits(nice=1),
        "queue": "q",
        "priority": 0,
        "demands": {"gpu": "h100", "arch/x": "arm64", "zone": "!=a|b", "cores": ">=8"},
        "expires_ms": 1,
        "after": [new_run_id(), new_run_id()],
        "on_failed": "run",
        "dedupe_key": "any {thing} goes: äöü <x>",
        "if_live": "replace",
        "plan": "p",
        "session": "s",
        "retry": RetryPolicy(failures=3, final=[OutcomeClass.OOM], factor=1.5),
        "keep_ms": 60_000,
    }
    return RunSpec.checked(**COMMAND | {name: value for name, value in fields.items() if chance.random() < 0.5})


@pytest.mark.parametrize("seed", range(30))
def test_a_spec_comes_back_from_the_wire_as_it_was(seed: int) -> None:
    spec = a_spec(random.Random(seed))

    assert parse_spec(spec.to_wire().decode(), spec.lane) == spec
    assert spec.to_wire() == parse_spec(spec.to_wire().decode(), spec.lane).to_wire()


def test_the_wire_has_its_version_first_and_no_defaults() -> None:
    assert RunSpec.checked(**COMMAND).to_wire() == b'{"v":1,"kind":"command","argv":["true"]}'


def test_fields_of_a_newer_version_are_passed_over_by_a_reader(world: World) -> None:
    """A submit refuses them."""
    run = world.submit(retry=RetryPolicy(failures=1), caps=ResourceLimits(nice=1))
    claim = world.worker("w1").claim(1)[0]
    world.queue.fail(claim, Outcome(class_=OutcomeClass.EXIT, exit_code=7))
    key, command = world.store.key(0, "run", run), world.store.connection.command
    spec = json.loads(command("HGET", key, "spec"))
    spec |= {"colour": "red", "retry": spec["retry"] | {"tries": 3}, "caps": spec["caps"] | {"gpu": 1}}
    attempt = json.loads(command("HGET", key, "attempt:1"))
    attempt |= {"mood": "good", "outcome": attempt["outcome"] | {"smell": "none"}}
    command("HSET", key, "spec", json.dumps(spec), "attempt:1", json.dumps(attempt), "colour", "red")

    read = world.get(run)

    assert (read.spec.retry, read.spec.caps) == (RetryPolicy(failures=1), ResourceLimits(nice=1))
    assert read.attempts[0].outcome == Outcome(class_=OutcomeClass.EXIT, exit_code=7)


@pytest.mark.parametrize("version", [0, 2, "1", None])
def test_another_wire_version_is_refused_with_what_to_do(version: object) -> None:
    wire = json.dumps({"v": version, "kind": "command", "argv": ["true"]})

    with pytest.raises(Incompatible, match=f"wire version {version!r}; this agentq reads 1. Upgrade this side."):
        parse_spec(wire, "default:5:")


def test_a_lane_tells_queue_priority_and_demands() -> None:
    spec = RunSpec.checked(**COMMAND, queue="q.1@x+y-z", priority=0, demands={"b": "2", "a/x": "1"})

    assert spec.lane == "q.1@x+y-z:0:a/x=1,b=2"
    assert parse_lane(spec.lane) == {"queue": "q.1@x+y-z", "priority": 0, "demands": {"a/x": "1", "b": "2"}}


def test_runs_with_the_same_demands_share_a_lane_in_whatever_order_these_are_given() -> None:
    one, other = ({"a": "1", "b": "2"}, {"b": "2", "a": "1"})

    assert RunSpec.checked(**COMMAND, demands=one).lane == RunSpec.checked(**COMMAND, demands=other).lane


def test_an_outcome_comes_back_as_it_was(world: World) -> None:
    outcome = Outcome(exit_code=0, result={"a": [1, None, "ä\0🦊"]}, tail="last\nline \x1b[0m", error=None)
    claim = world.held("w1", started=True)
    world.queue.finish([(claim, outcome)])

    assert world.get(claim.id).outcome == outcome


def test_all_attempts_are_told_with_their_ends(world: World) -> None:
    run = world.submit(retry=RetryPolicy(failures=2, delay_ms=1))
    lease = world.worker("w1")
    for number in (1, 2):
        (claim,) = lease.claim(1)
        world.queue.start([claim])
        world.queue.fail(claim, Outcome(class_=OutcomeClass.EXIT, exit_code=number))
        world.pass_ms(1000)
        world.tick()
        lease.heartbeat()
    lease.claim(1)

    told = world.get(run).attempts

    assert [(each.attempt, each.verb, each.outcome and each.outcome.exit_code) for each in told] == [
        (1, "fail", 1),
        (2, "fail", 2),
        (3, None, None),
    ]
    assert all(each.ended_at_ms == each.started_at_ms for each in told[:2])
