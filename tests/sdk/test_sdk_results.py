"""Results: how they are waited for, how failures look, large ones, and pickles."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from pathlib import Path

import pytest
from sdk import works
from sdk.conftest import executing
from sdk.works import Point
from support.servers import Server, until

from agentq.coordinator.errors import AgentqError, Invalid, NotAllowed, NotFound
from agentq.sdk import (
    Client,
    Folder,
    RunCancelled,
    RunFailed,
    StillGoing,
    as_completed,
    connect,
    gather,
    register_store,
)
from agentq.sdk.functions import result_store
from agentq.sdk.functions.codec import Function, load_function

KEY = "k" * 32

pytestmark = pytest.mark.usefixtures("client")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    """A folder for large results."""
    monkeypatch.setenv("AGENTQ_RESULTS", f"file://{tmp_path}/results")
    return Folder(tmp_path / "results")


@pytest.mark.usefixtures("worker")
def test_a_result_has_the_type_that_the_function_says(client: Client) -> None:
    run = works.move.submit(Point(1), by=2)

    assert run.result(timeout=20) == Point(3)
    assert client.run(run.id).result() == Point(3)
    assert run.wait() == "completed"


def test_a_wait_that_is_over_says_that_the_run_goes_on() -> None:
    run = works.double.submit(1)

    with pytest.raises(TimeoutError, match=f"{run.id} has not ended in time. It goes on"):
        run.result(timeout=0.01)
    with pytest.raises(StillGoing):
        run.wait("10ms")
    assert run.state() == "pending"


@pytest.mark.usefixtures("worker")
def test_a_failure_tells_its_class_its_error_and_its_traceback() -> None:
    run = works.breaks.submit("no paper")

    with pytest.raises(RunFailed, match=r"of sdk.works:breaks failed \(exit\): ValueError: no paper") as failed:
        run.result(20)
    assert (failed.value.class_, failed.value.run) == ("exit", run.id)
    assert failed.value.tail.rstrip().endswith("ValueError: no paper")


def test_a_run_that_was_cancelled_has_no_result() -> None:
    run = works.double.submit(1)

    assert run.cancel("not needed") == "cancelled"

    with pytest.raises(RunCancelled, match="not needed"):
        run.result()
    assert run.requeue() == "pending"


def test_gather_raises_the_first_failure_while_others_go_on() -> None:
    slow, fails = works.double.options(queue="nobody").submit(1), works.breaks.submit()
    fails.cancel()

    with pytest.raises(RunCancelled):
        gather(slow, fails)
    with pytest.raises(StillGoing):
        gather(slow, fails, timeout=0.05, return_exceptions=True)


@pytest.mark.usefixtures("worker")
def test_gather_can_tell_failures_in_the_place_of_results() -> None:
    good, bad, again = works.double.submit(1), works.breaks.submit(), works.double.submit(3)

    one, two, three = gather(good, bad, again, return_exceptions=True, timeout=20)

    assert (one, three) == (2, 6)
    assert isinstance(two, RunFailed)
    assert {run.id for run in as_completed([good, bad])} == {good.id, bad.id}
    assert gather() == []


def test_a_wait_survives_a_restart_of_the_server(durable: Server) -> None:
    with connect(durable.url) as client:
        runs = client.submit_many(works.double, [(number,) for number in range(20)])
        waits = (ended.id for ended in as_completed(runs, timeout=60))
        first = client.submit(works.double, 7)
        first.cancel()
        assert first.wait() == "cancelled"
        durable.stop()
        durable.start()
        with executing(client):
            assert sorted(waits) == sorted(run.id for run in runs)


@pytest.mark.usefixtures("worker")
def test_a_large_result_goes_to_the_store(store: Folder) -> None:
    run = works.grow.submit(100)

    assert run.result(20) == "x" * 102_400
    outcome = run.record().outcome
    assert outcome is not None
    reference = outcome.result
    assert isinstance(reference, dict)
    assert reference["bytes"] == 102_402
    assert str(reference["$ref"]) == f"file:{reference['sha256']}"
    assert works.grow.submit(1).result(20) == "x" * 1024
    assert len(list(store.path.glob("??/*"))) == 1


@pytest.mark.usefixtures("worker", "store")
def test_a_large_result_can_be_an_argument(client: Client) -> None:
    big = works.grow.submit(100)

    run = client.submit(works.length, big.later)

    assert run.result(20) == 102_400


@pytest.mark.usefixtures("worker")
def test_a_large_result_without_a_store_is_refused_if_the_server_would_not_take_it() -> None:
    assert len(works.grow.submit(100).result(20)) == 102_400
    with pytest.raises(RunFailed, match="set AGENTQ_RESULTS to a store"):
        works.grow.submit(1100).result(20)


def reference_to(body: bytes, store: Folder) -> tuple[bytes, Path]:
    text = result_store.store_result(body)
    digest = json.loads(text)["sha256"]
    return text, store.path / digest[:2] / digest


def test_a_stored_result_that_is_gone_damaged_or_elsewhere_says_so(
    store: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, file = reference_to(b'"%b"' % (b"x" * 100_000), store)
    assert result_store.load_result(text).startswith(b'"xxx')

    file.write_bytes(b"other")
    with pytest.raises(AgentqError, match="damaged"):
        result_store.load_result(text)
    file.unlink()
    with pytest.raises(NotFound, match="not in file://"):
        result_store.load_result(text)
    monkeypatch.delenv("AGENTQ_RESULTS")
    with pytest.raises(Invalid, match="set AGENTQ_RESULTS"):
        result_store.load_result(text)


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "a" * 63, "A" * 64, "a" * 64 + "/..", ""])
def test_no_reference_leads_out_of_the_folder(store: Folder, name: str) -> None:
    with pytest.raises(Invalid, match="not the name of a stored result"):
        result_store.load_result(json.dumps({"$ref": f"file:{name}", "bytes": 1, "sha256": name}).encode())
    with pytest.raises(Invalid, match="not the name of a stored result"):
        store.get(name)


def test_a_result_is_written_whole_once_and_pruned_by_its_age(store: Folder) -> None:
    _, old = reference_to(b'"%b"' % (b"a" * 100_000), store)
    _, new = reference_to(b'"%b"' % (b"b" * 100_000), store)
    os.utime(old, (1, 1))
    again, _ = reference_to(b'"%b"' % (b"b" * 100_000), store)

    assert store.prune(timedelta(hours=1)) == 1
    assert [each.name for each in store.path.glob("??/*")] == [new.name]
    assert result_store.load_result(again)


class Shelf:
    """A store of somebody's own."""

    bodies: dict[str, bytes] = {}  # noqa: RUF012

    def put(self, name: str, body: bytes) -> None:
        self.bodies[name] = body

    def get(self, name: str) -> bytes:
        return self.bodies[name]

    def delete(self, name: str) -> None:
        del self.bodies[name]


def test_other_stores_can_be_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    register_store("shelf", lambda _: Shelf())
    monkeypatch.setenv("AGENTQ_RESULTS", "shelf://here")

    text = result_store.store_result(b'"%b"' % (b"a" * 100_000))

    assert result_store.load_result(text) in Shelf.bodies.values()
    monkeypatch.setenv("AGENTQ_RESULTS", "s4://bucket")
    with pytest.raises(Invalid, match="there are file, shelf"):
        result_store.store_result(b'"%b"' % (b"a" * 100_000))


@pytest.fixture
def keyed(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setenv("AGENTQ_PICKLE_KEY", KEY)
    return monkeypatch


@pytest.mark.usefixtures("worker", "keyed")
def test_a_task_that_asks_for_pickles_takes_and_returns_any_object(client: Client) -> None:
    run = works.sealed.submit({1, 2})

    assert run.result(20) == frozenset({1, 2})
    with pytest.raises(RunFailed, match="is a pickle, which cannot be an argument"):
        client.submit("sdk.works:total", run).result(20)


def test_a_pickle_without_a_key_or_with_a_short_one_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotAllowed, match="need AGENTQ_PICKLE_KEY"):
        works.sealed.submit({1})
    monkeypatch.setenv("AGENTQ_PICKLE_KEY", "short")
    with pytest.raises(NotAllowed, match="fewer than 32 bytes"):
        works.sealed.submit({1})


def pickled(values: set[int]) -> str:
    text = works.sealed.function.packed((values,), {}).text
    assert text is not None
    return text


def test_a_pickle_is_opened_by_its_signature_only(keyed: pytest.MonkeyPatch) -> None:
    sealed = load_function("sdk.works:sealed")
    text = pickled({1})
    record = json.loads(text)
    forged = [
        json.dumps({**record, "hmac": "0" * 64}),
        json.dumps({"$pickle": 5, "hmac": 5}),
        json.dumps({**record, "$pickle": pickled({2})[12:60]}),
    ]

    assert sealed.arguments(text) == (({1},), {})
    for text_of_another in forged:
        with pytest.raises((Invalid, NotAllowed)):
            sealed.arguments(text_of_another)
    other = Function("sdk.works:another", works.sealed, pickled=True)
    with pytest.raises(NotAllowed, match="was not opened"):
        other.arguments(text)
    keyed.setenv("AGENTQ_PICKLE_KEY", "n" * 32)
    with pytest.raises(NotAllowed, match="was not opened"):
        sealed.arguments(text)


def test_keys_can_be_changed_while_runs_are_under_way(keyed: pytest.MonkeyPatch) -> None:
    old = pickled({1})
    keyed.setenv("AGENTQ_PICKLE_KEY", f"{'n' * 32},{KEY}")

    assert load_function("sdk.works:sealed").arguments(old) == (({1},), {})
    new = pickled({1})
    keyed.setenv("AGENTQ_PICKLE_KEY", "n" * 32)
    assert load_function("sdk.works:sealed").arguments(new) == (({1},), {})


@pytest.mark.usefixtures("keyed")
def test_a_function_that_did_not_ask_for_pickles_gets_none() -> None:
    with pytest.raises(Invalid, match="takes no pickle"):
        load_function("sdk.works:total").arguments(pickled({1}))


def test_the_first_wait_notices_an_end_that_comes_while_it_begins(client: Client) -> None:
    runs = works.double.map(range(50))
    with executing(client):
        assert gather(*runs, timeout=30) == [2 * number for number in range(50)]
    until(lambda: all(run.state() == "completed" for run in runs), "all runs to end")


@pytest.mark.full("takes 1 s")
def test_what_is_no_run_cannot_be_gathered(client: Client) -> None:
    run = client.submit(works.add, 1, 2)

    with pytest.raises(Invalid, match=r"is no Run; several are given as in gather\(\*runs\)"):
        gather([run])  # type: ignore[call-overload]


def test_what_is_no_list_of_runs_cannot_be_waited_for(client: Client) -> None:
    run = client.submit(works.add, 1, 2)

    with pytest.raises(Invalid, match="as_completed takes a list of runs, not <run"):
        list(as_completed(run))  # type: ignore[arg-type]
    with pytest.raises(Invalid, match=r"\[\] is not a duration"):
        run.wait([])  # type: ignore[arg-type]


def test_an_argument_too_many_is_told_by_its_place(client: Client) -> None:
    with pytest.raises(Invalid, match="cannot be called so: argument 3: unexpected positional argument, not 3"):
        client.submit("sdk.works:add", 1, 2, 3)
