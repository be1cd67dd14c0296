"""A worker's name belongs to the token that registered it, while that is valid."""

from __future__ import annotations

import json

import pytest
from support.http_servers import Serving
from support.worker_protocol import Peer, closed_with, everything, others_run, own_run
from websockets.exceptions import ConnectionClosed

from agentq.coordinator.model.spec import RunSpec
from agentq.coordinator.security.tokens import Tokens


@pytest.mark.full("takes 2 s")
def test_a_workers_name_belongs_to_the_token_that_it_was_registered_with(guarded: Serving) -> None:
    first = Peer(guarded).register()
    direct = others_run(guarded)

    assert closed_with(guarded, init={"worker": first.worker}) == 4403
    holder = guarded.records.get(direct.id).worker
    assert closed_with(guarded, init={"worker": holder}) == 4403


def test_who_took_a_name_early_is_not_the_worker_that_is_registered_by_it(guarded: Serving) -> None:
    """A connection that was there before the worker touches nothing of it, and does not lose its own place to it."""
    early = Peer(guarded)
    worker = Peer(guarded, init={"worker": early.worker})
    worker.worker = early.worker
    run, fence = own_run(guarded, worker)
    before = everything(guarded)

    lane = RunSpec.checked(kind="command", argv=["true"], queue=guarded.records.get(run).spec.queue).lane
    for script, *words in (
        ("heartbeat", early.worker, worker.epoch, 1, 1, "0", ""),
        ("claim", early.worker, worker.epoch, "nonce", 1, 1, "", lane),
        ("adopt", early.worker, worker.epoch, "nonce", 1, 1, lane, "1-1"),
        ("drain", early.worker, worker.epoch, "", "hurry"),
        ("deregister", early.worker, worker.epoch),
    ):
        assert early.call(str(script), *words)["kind"] == "NotAllowed", script
    assert early.ask("watch", lanes={"0": [lane]}, block_ms=100)["kind"] == "NotAllowed"
    assert everything(guarded) == before
    assert worker.call("attempt/start", run, fence)["reply"] == ["ok"]


def test_a_token_of_some_queues_is_good_for_no_worker_of_others(guarded: Serving) -> None:
    other = Peer(guarded).register("theirs")
    token = guarded.token("work", queues=["mine"])

    assert closed_with(guarded, token=token, init={"worker": other.worker}) == 4403


@pytest.mark.full("takes 5 s")
def test_who_waits_is_given_nothing_once_its_token_is_revoked(guarded: Serving) -> None:
    token = guarded.token("work", kind="worker")
    peer = Peer(guarded, token).register("late")
    lane = RunSpec.checked(kind="command", argv=["true"], queue="late").lane
    claim = [peer.worker, peer.epoch, "nonce", 1, 0, "fresh", lane]
    peer.socket.send(json.dumps({"type": "watch", "id": 99, "lanes": {"0": []}, "block_ms": 30_000, "claim": claim}))

    Tokens(guarded.store).revoke(token.split("_")[2])

    with pytest.raises(ConnectionClosed) as closed:
        peer.socket.recv(20)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 4403


def test_a_newer_connection_takes_the_place_of_an_older_one_and_the_end_of_that_changes_nothing(
    guarded: Serving,
) -> None:
    token = guarded.token("work", kind="worker")
    older = Peer(guarded, token).register()
    newer = Peer(guarded, token, init={"worker": older.worker})

    with pytest.raises(ConnectionClosed) as closed:
        older.socket.recv(10)

    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 4409
    newer.worker = older.worker
    assert newer.call("worker/heartbeat", newer.worker, older.epoch, 1, 1, "0", "")["reply"][:2] == ["ok", "ready"]
