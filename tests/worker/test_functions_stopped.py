"""Function runs that are stopped: by their time, by an order, by force."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.function_workers import Callers
from support.servers import until


@pytest.mark.full("takes 1 s")
@pytest.mark.parametrize("name", ["caught", "caught_beside"])
def test_a_function_can_catch_the_end_of_its_time(callers: Callers, name: str) -> None:
    callers.worker()

    ended = callers.ended(callers.call(name, 600, timeout_ms=200))

    assert (ended.state, ended.outcome.result) == ("completed", "caught")


@pytest.mark.full("takes 1 s")
@pytest.mark.parametrize("name", ["slept", "slept_beside"])
def test_a_function_that_does_not_catch_it_has_timed_out(callers: Callers, name: str) -> None:
    callers.worker()

    ended = callers.ended(callers.call(name, 600, timeout_ms=200))

    assert (ended.state, ended.outcome.class_) == ("failed", "timeout")
    assert ended.outcome.error == "ran longer than 200 ms"
    assert "SoftTimeout" in ended.outcome.tail


@pytest.mark.full("takes 5 s")
def test_a_function_that_goes_on_after_its_time_is_killed(callers: Callers) -> None:
    callers.worker()
    callers.ended(callers.call("nothing"))

    ended = callers.ended(callers.call("stubborn", timeout_ms=1_000, stop_grace_ms=3_000))

    assert (ended.state, ended.outcome.class_) == ("failed", "timeout")
    assert callers.effects("struck")[ended.id] == 1
    assert callers.ended(callers.call("added", 1, 2)).outcome.result == 3, "others go on in another child"


@pytest.mark.parametrize("name", ["tidied", "tidied_beside"])
def test_a_cancelled_function_can_tidy_up(callers: Callers, name: str) -> None:
    callers.worker()
    run = callers.call(name, 600)
    until(lambda: callers.effects("begin")[run] and callers.state(run) == "running", "the run to have begun")

    callers.queue.cancel(run, "not wanted")
    ended = callers.ended(run)

    assert (ended.state, ended.outcome.error) == ("cancelled", "not wanted")
    assert callers.effects("tidied")[run] == 1


@pytest.mark.full("takes 3 s")
def test_a_cancelled_function_that_goes_on_is_killed(callers: Callers) -> None:
    callers.worker()
    run = callers.call("stubborn", stop_grace_ms=200)
    until(lambda: callers.effects("begin")[run] and callers.state(run) == "running", "the run to have begun")

    callers.queue.cancel(run)

    assert callers.ended(run).state == "cancelled"


@pytest.mark.full("takes 2 s")
def test_a_call_that_waits_in_a_child_is_cancelled_without_beginning(callers: Callers, folder: Path) -> None:
    callers.worker(children=1)
    callers.wait([callers.call("nothing") for _ in range(300)])
    first = callers.call("slept_until", str(folder / "go"))
    runs = [callers.call("slept", 0.01) for _ in range(20)]
    until(lambda: callers.effects("begin")[first], "the first to begin")

    for run in runs[10:]:
        callers.queue.cancel(run)
    callers.wait(runs[10:])
    (folder / "go").touch()
    callers.wait(runs)

    assert [callers.state(run) for run in runs] == ["completed"] * 10 + ["cancelled"] * 10
    assert callers.effects("begin") == dict.fromkeys([first, *runs[:10]], 1)


@pytest.mark.full("takes 2 s")
def test_of_neighbours_in_a_child_only_the_one_that_is_stopped_ends(callers: Callers) -> None:
    callers.worker()
    runs = [callers.call("slept_beside", 1) for _ in range(10)]
    stopped = callers.call("tidied_beside", 600)
    until(lambda: callers.effects("begin")[stopped], "it to begin")

    callers.queue.cancel(stopped)
    callers.wait([stopped, *runs])

    assert callers.state(stopped) == "cancelled"
    assert {callers.state(run) for run in runs} == {"completed"}


@pytest.mark.full("takes 6 s")
def test_a_function_that_is_silent_for_too_long_is_stopped(callers: Callers) -> None:
    callers.worker()

    ended = callers.ended(callers.call("slept", 600, silence_timeout_ms=200))
    chatty = callers.ended(callers.call("chatted", 4, silence_timeout_ms=3_000))

    assert (ended.outcome.class_, ended.outcome.error) == ("silence", "was silent for 200 ms")
    assert chatty.state == "completed"
