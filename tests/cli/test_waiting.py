"""The commands around runs that wait: signal, approve, deny, park, and what the others say of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli.conftest import Cli, sentence
from support.world import World

from agentq.coordinator.bounds import PARKED_STATE_BYTES
from agentq.coordinator.model.spec import Outcome
from agentq.coordinator.runs.wait import RunWait, list_signals


def parked(real: World, **wait: object) -> str:
    claim = real.held("w1", started=True)
    real.queue.park(claim, wait=RunWait.checked(**wait))
    return claim.id


def test_a_signal_wakes_who_waits_for_it_and_says_who_sent_it(cli: Cli, real: World, backend: str) -> None:
    run = parked(real, signals=("go",))

    answer = cli("signal", run, "go", "--data", '{"how": "fast"}')

    assert (answer.lines, answer.code) == ([f"{run}\tpending"], 0)
    (message,) = list_signals(real.store, run)
    assert message.data == {"how": "fast"}
    assert ("@" if backend == "redis" else "token of this machine") in message.by


def test_a_signal_that_nobody_waits_for_is_kept(cli: Cli, real: World) -> None:
    run = real.submit(delay_ms=60_000)

    assert cli("signal", run[:25], "go").lines == [f"{run}\tscheduled\tkeeps it until it waits for it"]
    assert json.loads(cli("signal", run, "go", "--json").out) == {"id": run, "state": "scheduled"}
    assert "mail that it has not taken\n    go  at " in cli("show", run).out
    assert [each["name"] for each in json.loads(cli("show", run, "--json").out)["mail"]] == ["go", "go"]


@pytest.mark.parametrize(("command", "verdict"), [("approve", "approved"), ("deny", "denied")])
def test_a_verdict_reaches_the_run_with_its_comment(cli: Cli, real: World, command: str, verdict: str) -> None:
    run = parked(real, approval=True)

    assert cli(command, run, "--comment", "so be it").lines == [f"{run}\tpending"]

    assert [each.data for each in list_signals(real.store, run)] == [{"verdict": verdict, "comment": "so be it"}]


@pytest.mark.parametrize("command", [("signal", "go"), ("approve",), ("deny",)])
def test_an_ended_run_hears_nothing(cli: Cli, real: World, command: tuple[str, ...]) -> None:
    done = real.held("w1", started=True)
    real.queue.finish([(done, Outcome())])

    answer = cli(command[0], done.id, *command[1:])

    assert sentence(answer) == f"The run {done.id} is completed; this verb does not apply to that state."
    assert answer.code == 5


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("go", "--data", "{"), "--data takes JSON"),
        (("approval",), "give it with `agentq approve`"),
        (("a b",), "cannot be sent"),
        (("go", "--data", json.dumps("x" * 70_000)), "65536 is the most"),
        (("go", "--data", "NaN"), "NaN has no place in JSON"),
    ],
)
def test_what_cannot_be_a_signal_is_refused(cli: Cli, real: World, words: tuple[str, ...], why: str) -> None:
    run = real.submit()

    answer = cli("signal", run, *words)

    assert why in sentence(answer)
    assert answer.code == 2
    assert list_signals(real.store, run) == []


def test_why_says_what_it_waits_for_since_when_and_who_can_bring_it(cli: Cli, real: World) -> None:
    run = parked(real, signals=("deploy",), approval=True, for_ms=3_600_000)

    told = cli("why", run).out

    assert "It waits for an approval, or the signal deploy, since 20" in told
    assert f"`agentq approve {run}` gives the approval" in told
    assert f"`agentq signal {run} deploy` sends the signal" in told
    assert "in any case" in told


def test_why_tells_which_children_still_live(cli: Cli, real: World) -> None:
    claim = real.held("w1", started=True)
    children = [real.submit(queue="other", parent=claim.id) for _ in range(2)]
    real.queue.park(claim, wait=RunWait(children="all"))
    real.queue.cancel(children[0])

    told = cli("why", claim.id).out

    assert "all of its children to end" in told
    assert f"1 of its children has not ended: {children[1]} (pending)." in told


def test_a_list_says_what_waiting_runs_wait_for(cli: Cli, real: World) -> None:
    run = parked(real, approval=True)

    assert cli("ls", "--state", "waiting").lines[0].split("\t")[:3] == [run, "waiting", "for an approval"]
    record = json.loads(cli("ls", "--state", "waiting", "--json").out)["waits_for"]
    assert (record["approval"], record["signals"], record["children"], record["until"]) == (True, [], None, None)


def test_a_run_submits_children_of_its_own(cli: Cli, real: World, monkeypatch: pytest.MonkeyPatch) -> None:
    parent = real.submit(queue="other")

    by_name = cli("submit", "--parent", parent[:25], "--children", "leave", "--", "true").out.strip()
    monkeypatch.setenv("AGENTQ_RUN_ID", parent)
    by_place = cli("submit", "--child", "--", "true").out.strip()

    assert [real.get(run).spec.parent for run in (by_name, by_place)] == [parent, parent]
    assert real.get(by_name).spec.children == "leave"
    assert parent in cli("show", by_name).out


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--child",), "--child is said within a run"),
        (("--child", "--parent", "run_x"), "contradict each other"),
        (("--children", "adopt"), "--children"),
    ],
)
def test_what_cannot_be_a_child_is_refused(cli: Cli, words: tuple[str, ...], why: str) -> None:
    answer = cli("submit", *words, "--", "true")

    assert why in sentence(answer)
    assert answer.code == 2


def test_a_child_of_an_ended_run_is_refused(cli: Cli, real: World) -> None:
    parent = real.submit()
    real.queue.cancel(parent)

    answer = cli("submit", "--parent", parent, "--", "true")

    assert "does not exist or has ended" in sentence(answer)
    assert answer.code == 5


def test_park_writes_the_request_into_the_place_of_the_result(
    cli: Cli, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And asks no server."""
    monkeypatch.setenv("AGENTQ_RESULT", str(here / "result"))
    monkeypatch.setenv("AGENTQ_URL", "redis://127.0.0.1:1")

    answer = cli("park", "--signal", "a", "--signal", "b", "--until", "2h", "--children", "any", "--state", "[1]")

    assert (answer.code, answer.out) == (0, "")
    assert json.loads((here / "result").read_text()) == {
        "park": {"signal": ["a", "b"], "until": "2h", "children": "any", "state": [1]}
    }
    assert [path.name for path in here.iterdir()] == ["result"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((), "to wait for"),
        (("--signal", "approval"), "as such"),
        (("--signal", "a b"), "cannot be parked"),
        (("--until", "soon"), "'soon' is neither a duration"),
        (("--children", "some"), "children"),
        (("--approval", "--state", "{"), "--state takes JSON"),
        (("--approval", "--state", json.dumps("x" * (PARKED_STATE_BYTES + 1))), f"{PARKED_STATE_BYTES} is the most"),
    ],
)
def test_what_cannot_be_waited_for_is_refused_before_anything_is_written(
    cli: Cli, here: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], why: str
) -> None:
    monkeypatch.setenv("AGENTQ_RESULT", str(here / "result"))

    answer = cli("park", *words)

    assert why in sentence(answer)
    assert answer.code == 2
    assert list(here.iterdir()) == []


def test_park_outside_of_a_run_says_so(cli: Cli) -> None:
    assert "AGENTQ_RESULT is not set" in sentence(cli("park", "--approval"))
