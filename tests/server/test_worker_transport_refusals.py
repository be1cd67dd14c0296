"""Requests that a worker's connection refuses, each with a message and without effect."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from support.crew import Crew
from support.http_servers import Serving
from support.servers import Server, until
from support.worker_protocol import Peer, closed_with, everything, others_run, own_run
from websockets.exceptions import ConnectionClosed, InvalidStatus

from agentq.coordinator.bounds import CLAIM_PER_CALL, LIMIT_SHUT_MS_MAX
from agentq.coordinator.model.ids import new_run_id
from agentq.coordinator.model.spec import Outcome, RunSpec
from agentq.coordinator.queues.limits import Limits
from agentq.coordinator.security.tokens import Tokens
from agentq.coordinator.storage.scripts import SCRIPTS
from agentq.coordinator.workers.lease import WorkerIdentity
from agentq.remote_worker.permissions import ARGUMENT_CHECKS, ARGUMENT_PATTERNS, WORKER_SCRIPTS, WorkerPermissions


@pytest.mark.parametrize(
    ("token", "status"),
    [("", 401), ("aq_worker_000000000000_" + "0" * 72, 401), ("read", 403), ("submit", 403), ("expired", 401)],
)
def test_whoever_has_no_token_for_work_is_not_let_in(guarded: Serving, token: str, status: int) -> None:
    if token in ("read", "submit"):
        token = guarded.token(token)
    elif token == "expired":
        token = guarded.token("work", kind="worker", expires_ms=1)
    with pytest.raises(InvalidStatus) as refused:
        Peer(guarded, token)

    assert refused.value.response.status_code == status
    assert json.loads(refused.value.response.body or b"")["detail"]


@pytest.mark.parametrize(
    ("init", "code"),
    [
        ("not json", 4400),
        ("[]", 4400),
        ('{"type":"call","id":1,"script":"lanes","partition":0,"words":[]}', 4400),
        ({"protocol": 99}, 4426),
        ({"worker": "../etc"}, 4400),
        ({"purpose": "other"}, 4400),
        ({"token": "x"}, 4400),
    ],
)
def test_a_connection_that_does_not_begin_with_who_it_is_is_closed(
    guarded: Serving, init: dict[str, Any] | str, code: int
) -> None:
    assert closed_with(guarded, init=init) == code


@pytest.mark.full("takes 1 s")
@pytest.mark.parametrize("script", sorted(SCRIPTS.keys() - WORKER_SCRIPTS))
def test_no_script_but_a_workers_can_be_called(peer: Peer, script: str) -> None:
    refused = peer.call(script, *(["x"] * len(SCRIPTS[script].header.arguments)))

    assert (refused["type"], refused["kind"]) == ("refusal", "NotAllowed")


def test_every_script_that_shows_a_fence_is_a_workers_and_every_word_of_those_is_checked() -> None:
    """A new one has to be thought about: what it may be told, by whom."""
    fenced = {name for name, script in SCRIPTS.items() if "fence" in (*script.header.arguments, *script.header.rows)}
    words = {name for each in WORKER_SCRIPTS for name in (*SCRIPTS[each].header.arguments, *SCRIPTS[each].header.rows)}

    assert fenced - WORKER_SCRIPTS == {"run/cancel"}, "which is said of children"
    others = {"worker", "identity", "random", "lease_ms", "grace_ms", "lane", "lanes", "limit"}
    assert words - ARGUMENT_PATTERNS.keys() - ARGUMENT_CHECKS.keys() == others


@pytest.fixture(scope="module")
def peer(guarded: Serving) -> Peer:
    """One that is registered."""
    return Peer(guarded).register()


def test_a_worker_is_itself_and_nobody_else(guarded: Serving, peer: Peer) -> None:
    other = guarded.records.get(others_run(guarded).id).worker
    identity = WorkerIdentity(id=other, queues=("default",)).model_dump_json()
    before = everything(guarded)

    for script, *words in (
        ("worker/register", other, "0", "op", 1, "0", identity),
        ("worker/register", peer.worker, "0", "op", 1, "0", identity),
        ("worker/heartbeat", other, "0", 1, 1, "0", ""),
        ("worker/claim", other, "0", "nonce", 1, 1, ""),
        ("worker/claim_delivered", other, "0", "nonce", 1, 1, "default:5:", "1-1"),
        ("worker/drain", other, "", "", "hurry"),
        ("worker/deregister", other, "0"),
        ("worker/finish_and_claim", other, "0", 0, "nonce", 1, "0", ""),
    ):
        assert peer.call(str(script), *words)["kind"] == "NotAllowed", script
    assert everything(guarded) == before


@pytest.mark.full("takes 2 s")
def test_what_another_worker_holds_is_not_touched_not_even_with_its_fence(guarded: Serving, peer: Peer) -> None:
    run, fence, *_ = others_run(guarded)
    outcome = Outcome().to_wire()
    before = everything(guarded)

    assert peer.call("attempt/start", run, fence)["reply"] == ["fenced"]
    assert peer.call("attempt/finish", run, fence, outcome)["reply"] == ["fenced"]
    assert peer.call("attempt/append_log", run, fence, 1, "out", "mine")["reply"] == "fenced"
    assert peer.call("attempt/release", run, fence, "mine")["reply"] == "fenced"
    assert peer.call("conversation/get", run, fence)["reply"] == "fenced"
    assert peer.call("merge/get_step", run, fence)["reply"] == "fenced"
    told = peer.call(
        "worker/finish_and_claim", peer.worker, peer.epoch, 0, "nonce", 0, "0", "", run, fence, "ok", outcome, ""
    )
    assert told["reply"][2:] == [1, 0, "fenced"]
    for kind, more in (("run_state", {"child": run}), ("cancel_child", {"child": run, "reason": "mine"})):
        assert peer.ask(kind, run=run, fence=fence, **more)["kind"] == "Fenced", kind
    assert everything(guarded) == before


def test_of_the_runs_of_others_a_run_of_ones_own_tells_nothing(guarded: Serving) -> None:
    peer = Peer(guarded)
    run, fence = own_run(guarded, peer)
    stranger = guarded.submit(queue="elsewhere")
    of = {"run": run, "fence": fence}
    spec = {"kind": "command", "argv": ["true"], "queue": guarded.records.get(run).spec.queue}

    assert peer.ask("run_state", child=run, **of)["reply"]["id"] == run
    for kind, more in (
        ("run_state", {"child": stranger}),
        ("cancel_child", {"child": stranger, "reason": ""}),
        ("child_log", {"child": stranger, "after": "0-0", "characters": 10}),
        ("await_child", {"child": stranger, "within_ms": 10}),
        ("submit_child", {"spec": {**spec, "queue": "elsewhere"}, "most": 1}),
        ("submit_child", {"spec": {**spec, "parent": stranger}, "most": 1}),
        ("submit_child", {"spec": {**spec, "plan": "x"}, "most": 1}),
        ("submit_child", {"spec": {**spec, "after": [stranger]}, "most": 1}),
        ("submit_child", {"spec": {**spec, "inputs": {"its": stranger}}, "most": 1}),
    ):
        more |= {"child": new_run_id()} if kind == "submit_child" else {}
        assert peer.ask(kind, **of, **more)["kind"] == "NotAllowed", kind
    assert guarded.records.get(stranger).state == "pending"


@pytest.mark.parametrize(
    "spec",
    [
        {"kind": "command", "argv": ["sh", "-c", "id"]},
        {"kind": "function", "function": "os:getenv", "args": ["AGENTQ_URL"]},
        {"kind": "agent", "agent": "claude", "prompt": "id"},
    ],
)
def test_a_worker_does_not_submit_through_a_run_that_may_not(guarded: Serving, spec: dict[str, object]) -> None:
    peer = Peer(guarded)
    run, fence = own_run(guarded, peer)
    spec |= {"queue": guarded.records.get(run).spec.queue}

    refused = peer.ask("submit_child", run=run, fence=fence, child=new_run_id(), spec=spec, most=1)

    assert refused["kind"] == "NotAllowed"
    assert "may_submit" in refused["message"]
    assert guarded.records.children(run) == (0, [])


def test_a_child_that_is_asked_for_twice_is_one_child(guarded: Serving) -> None:
    """The answer may have been lost with the connection."""
    peer = Peer(guarded)
    run, fence = own_run(guarded, peer, may_submit=("command",))
    spec = {"kind": "command", "argv": ["true"], "queue": guarded.records.get(run).spec.queue}
    child = new_run_id()

    told = [peer.ask("submit_child", run=run, fence=fence, child=child, spec=spec, most=1)["reply"] for _ in range(2)]

    assert told[0] == told[1] != child, "a worker does not choose the ids of runs"
    assert guarded.records.children(run) == (1, [told[0]])


def test_lanes_of_queues_that_a_worker_does_not_serve_are_neither_shown_nor_given(guarded: Serving, peer: Peer) -> None:
    guarded.submit(queue="secret-plans")
    lane = RunSpec.checked(kind="command", argv=["true"], queue="secret-plans").lane

    assert not [each for each in peer.call("queue/list_lanes")["reply"] if "secret" in str(each)]
    assert peer.call("worker/claim", peer.worker, peer.epoch, "nonce", 1, 1, "", lane)["kind"] == "NotAllowed"
    assert peer.ask("watch", lanes={"0": [lane]}, block_ms=100)["kind"] == "NotAllowed"
    assert peer.ask("pending", partition=0, lanes=[lane])["kind"] == "NotAllowed"


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("worker/claim", ["@", "@epoch", "nonce", "many", 0, ""]),
        ("worker/claim", ["@", "@epoch", "non ce", 1, 0, ""]),
        ("worker/claim", ["@", "@epoch"]),
        ("worker/claim", ["@", "@epoch", "nonce", 1, 0, "", "no lane"]),
        ("worker/heartbeat", ["@", "@epoch", 1, 1, "0", "1-1,*"]),
        ("worker/heartbeat", ["@", "@epoch", 1, 1, "0", "", "run_x", "1-a"]),
        ("attempt/finish", ["run_00000000000000000000000", "1-a", "{}{"]),
        ("attempt/finish", ["run_00000000000000000000000", "1-a", '{"class":"splendid"}']),
        ("attempt/finish", ["../../etc", "1-a", "{}"]),
        ("attempt/fail", ["run_00000000000000000000000", "1-a", "splendid", "{}", "0", ""]),
        ("attempt/append_log", ["run_00000000000000000000000", "1-a", 1, "stdout", "x"]),
        ("attempt/append_log", ["run_00000000000000000000000", "1-a", 1, "out"]),
        ("worker/finish_and_claim", ["@", "@epoch", "state", "nonce", 0, "0", ""]),
        ("attempt/park", ["run_00000000000000000000000", "1-a", "", "", "", "", "some", ""]),
        ("attempt/report_progress", ["run_00000000000000000000000", "1-a", 1, "no json"]),
        ("merge/record_step", ["run_00000000000000000000000", "1-a", '{"step":"done"}']),
        ("merge/enter_queue", ["run_00000000000000000000000", "1-a", "../line", "0" * 40, ""]),
        ("worker/heartbeat", ["@", "@epoch", 1, 1, "0", "9" * 20 + "-0"]),
        ("attempt/get_wait_result", ["run_00000000000000000000000", "1-a", "(1"]),
        ("worker/claim", ["@", "@epoch", "nonce", "\N{ARABIC-INDIC DIGIT ONE}", 0, ""]),
    ],
)
def test_words_that_a_script_would_stumble_over_do_not_reach_it(
    guarded: Serving, peer: Peer, script: str, words: list[object]
) -> None:
    said = {"@": peer.worker, "@epoch": peer.epoch}
    before = everything(guarded)

    assert peer.call(script, *(said.get(str(word), word) for word in words))["kind"] == "Invalid"
    assert peer.call("queue/list_lanes", partition=7)["kind"] == "Invalid"
    assert everything(guarded) == before


@pytest.mark.parametrize("limit", ["queue:default", "global", "account:claude:default", "x"])
def test_a_worker_shuts_no_gate_but_of_an_account_of_an_agent_that_it_has(peer: Peer, limit: str) -> None:
    assert peer.call("limit/block_until", limit, 2_000_000_000_000, "mine")["kind"] == "NotAllowed"
    assert peer.call("limit/list", limit)["kind"] == "NotAllowed"
    assert peer.call("limit/list")["kind"] == "NotAllowed", "which would tell of all"


def test_a_worker_shuts_an_account_only_while_it_holds_a_run_of_that_agent_and_for_some_hours(
    guarded: Serving,
) -> None:
    peer, key = Peer(guarded).register("agents", labels={"agent.standin": "ready"}), "account:standin:default"
    far = 10**16 - 1
    before = everything(guarded)
    assert peer.call("limit/block_until", key, far, "mine")["kind"] == "Fenced"
    assert everything(guarded) == before

    spec = RunSpec.checked(kind="agent", agent="standin", prompt="SAY hello", queue="agents")
    run = guarded.queue.submit(spec).id
    claimed = peer.call("worker/claim", peer.worker, peer.epoch, "nonce", 1, 0, "", spec.lane)["reply"]
    assert claimed[2] == run
    assert peer.call("limit/block_until", key, far, "it met its limit")["reply"] == "ok"
    shut_for_ms = (Limits(guarded.store).named([key])[0].shut_until_ms or 0) - guarded.store.time_ms()
    assert 0 < shut_for_ms <= LIMIT_SHUT_MS_MAX
    with guarded.client(guarded.token("read")) as client:
        assert client.get("/limits").status_code == 200


def test_one_call_keeps_the_server_no_longer_than_one_of_our_own(guarded: Serving, peer: Peer) -> None:
    rows = [word for _ in range(10 * CLAIM_PER_CALL + 1) for word in ("run_00000000000000000000000", "1-a")]
    assert peer.call("worker/heartbeat", peer.worker, peer.epoch, 1, 1, "0", "", *rows)["kind"] == "Invalid"

    checked = WorkerPermissions(guarded.store, guarded.settings, "x").check_arguments(
        "worker/claim", ["x", "1", "n", 10**15, "9" * 16, ""]
    )
    assert checked[3:5] == [CLAIM_PER_CALL, CLAIM_PER_CALL]


def test_the_times_of_a_lease_are_the_coordinators_to_say(guarded: Serving, peer: Peer) -> None:
    peer.call("worker/heartbeat", peer.worker, peer.epoch, 10**12, 10**12, "0", "")

    (record,) = [each for each in guarded.records.workers() if each.id == peer.worker]
    assert record.lease_until_ms - record.seen_at_ms == guarded.settings.lease_ms


def test_a_token_of_some_queues_makes_no_worker_of_others(guarded: Serving) -> None:
    peer = Peer(guarded, guarded.token("work", kind="worker", queues=["mine"]))
    identity = WorkerIdentity(id=peer.worker, queues=("mine", "default")).model_dump_json()

    assert peer.call("worker/register", peer.worker, "0", "op", 1, "0", identity)["kind"] == "NotAllowed"
    assert peer.register("mine").epoch != "0"


@pytest.mark.parametrize("said", ["{", '{"type":"sing","id":1}', '{"type":"init"}', "\x00", '{"type":"wake","id":-1}'])
def test_garbage_in_the_middle_ends_the_connection_and_nothing_else(guarded: Serving, said: str) -> None:
    peer = Peer(guarded).register()
    peer.socket.send(said)

    with pytest.raises(ConnectionClosed) as closed:
        peer.socket.recv(10)

    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 4400
    assert peer.worker in {each.id for each in guarded.records.workers()}


def test_a_message_that_is_too_large_ends_the_connection_and_nothing_else(guarded: Serving) -> None:
    peer = Peer(guarded)

    with suppress(ConnectionClosed):
        peer.socket.send("x" * (33 << 20))

    with pytest.raises(ConnectionClosed) as closed:
        peer.socket.recv(10)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1009
    assert guarded.answers()


@pytest.mark.full("takes 5 s")
def test_a_worker_whose_token_is_revoked_ends(guarded: Serving, valkey: Server, make_crew: Callable[..., Crew]) -> None:
    crew = make_crew(valkey, namespace=guarded.settings.namespace)
    token, text = Tokens(guarded.store).new("laptop", ["work"], kind="worker")
    worker = crew.worker_through(guarded.url, {"AGENTQ_WORKER_TOKEN": text}, queue="revoked")
    run = crew.submit("sleep 60", queue="revoked", stop_grace_ms=100)
    until(lambda: crew.effects("begin").total() == 1, "the run to begin")

    Tokens(guarded.store).revoke(token.id)

    assert worker.wait(30) == 4
    assert crew.processes() == []
    assert crew.state(run) == "running", "nobody could be told, and its lease goes on"


def test_those_who_wait_for_children_keep_nobody_from_being_answered(guarded: Serving) -> None:
    peer = Peer(guarded)
    run, fence = own_run(guarded, peer)
    for _ in range(100):
        asked = {"type": "await_child", "id": next(peer.numbers), "run": run, "fence": fence, "child": run}
        peer.socket.send(json.dumps({**asked, "within_ms": 30_000}))

    assert peer.call("worker/heartbeat", peer.worker, peer.epoch, 1, 1, "0", "", run, fence)["reply"][:2] == [
        "ok",
        "ready",
    ]
