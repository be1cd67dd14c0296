"""Records carry the id of the token that created them, and can be ended with it."""

from __future__ import annotations

import pytest
from support.http_servers import Serving
from support.worker_protocol import Peer

from agentq.coordinator.config.server_settings import ServerSettings
from agentq.coordinator.errors import NotAllowed, NotFound
from agentq.coordinator.model.ids import new_run_id
from agentq.coordinator.model.spec import RunSpec
from agentq.coordinator.queues.queues import Queues
from agentq.coordinator.runs.verbs import Claim
from agentq.coordinator.schedules.verbs import Schedules
from agentq.coordinator.security.token_revocation import RevocableTokens
from agentq.coordinator.security.tokens import Tokens
from agentq.coordinator.token_context import use_token
from agentq.server.service import RunSubmission, ServerService

COMMAND = {"kind": "command", "argv": ["true"]}
HOUR = {"every_ms": 3_600_000, "run": COMMAND}


def id_in(token: str) -> str:
    return token.split("_")[2]


def made_by(serving: Serving, run: str) -> str:
    return serving.records.get(run).made_by


def test_each_way_in_notes_the_token(guarded: Serving) -> None:
    """One run, many, with a key, durably, a turn, a plan, a schedule and its ticks, another system's run, a fork."""
    token = guarded.token("submit", "read")
    by = id_in(token)
    with guarded.client(token) as client:
        one = client.post("/runs", json=COMMAND).json()["id"]
        many = [each["id"] for each in client.post("/runs", json={"runs": [COMMAND, COMMAND]}).json()["runs"]]
        keyed = client.post("/runs", json=COMMAND, headers={"idempotency-key": "x"}).json()["id"]
        session = client.post("/sessions", json={"name": "made", "agent": "standin"}).json()
        fork = client.post("/sessions/made/fork", json={"name": "forked"}).json()
        turn = client.post("/sessions/made/turns", json={"prompt": "hello"}).json()["id"]
        plan = client.post("/plans", json={"name": "p", "tasks": [{"id": "a", "run": COMMAND}]}).json()["id"]
        task = client.get(f"/plans/{plan}/tasks").json()["tasks"][0]["run"]
        planned = client.get(f"/plans/{plan}").json()
        schedule = client.put("/schedules/made", json=HOUR).json()
        ticked = client.post("/schedules/made/run").json()["id"]
        other = client.post("/runs", json={"type": "start_session", "session_name": "other", "prompt": "hi"})
        told = client.get(f"/runs/{one}").json()["made_by"]
        assert client.get("/runs", params={"made_by": "0" * 12}).json()["runs"] == []
        listed = {each["id"] for each in client.get("/runs", params={"made_by": by}).json()["runs"]}

    runs = [one, *many, keyed, turn, task, ticked]
    assert {run: made_by(guarded, run) for run in runs} == dict.fromkeys(runs, by)
    assert session["made_by"] == fork["made_by"] == planned["made_by"] == schedule["made_by"] == told == by
    if other.status_code == 200:
        runs.append(other.json()["run_id"])
        assert made_by(guarded, runs[-1]) == by
    assert listed >= {run for run in runs if run.startswith("run_")}


def test_what_is_made_together_bears_the_token_of_each(guarded: Serving) -> None:
    """Submits of many requests go to the store in one call."""
    spec = RunSpec.checked(**COMMAND)
    submits = [RunSubmission(spec, new_run_id(), 0, by) for by in ("a", "b", "a", "", "b")]
    service = ServerService(guarded.settings, ServerSettings())

    receipts = service.submit_batch(submits)

    service.store.connection.close()
    assert [receipt.id for receipt in receipts] == [each.id for each in submits]
    assert [made_by(guarded, each.id) for each in submits] == ["a", "b", "a", "", "b"]


@pytest.mark.parametrize("by", ["12e456789012", "123456789012", "1e9999999999"])
def test_a_token_whose_id_reads_as_a_number_is_not_taken_for_the_time(guarded: Serving, by: str) -> None:
    """Of 140 ids that are made by chance, one does."""
    before = guarded.store.time_ms()

    with use_token(by):
        run = guarded.queue.submit(RunSpec.checked(**COMMAND)).id

    assert made_by(guarded, run) == by
    assert before <= guarded.records.get(run).submitted_at_ms <= guarded.store.time_ms()


def test_children_and_ticks_bear_the_token_of_what_made_them(guarded: Serving) -> None:
    spec = COMMAND | {"queue": "made-by", "may_submit": ["command"]}
    token = guarded.token("submit")
    with guarded.client(token) as client:
        run = client.post("/runs", json=spec).json()["id"]
        client.put("/schedules/ticking", json=HOUR)
    peer = Peer(guarded).register("made-by")
    lane = guarded.records.get(run).spec.lane
    claimed = peer.call("worker/claim", peer.worker, peer.epoch, "nonce", 1, 0, "", lane)["reply"]

    child = peer.ask("submit_child", run=run, fence=claimed[3], child=new_run_id(), spec=spec, most=1)["reply"]
    tick = Schedules(guarded.store).run("ticking").id

    assert [made_by(guarded, each) for each in (run, child, tick)] == [id_in(token)] * 3


def test_a_token_is_revoked_with_all_that_it_made_and_nothing_else(guarded: Serving) -> None:
    thief, other = guarded.token("admin"), guarded.token("submit")
    with guarded.client(other) as client:
        kept = client.post("/runs", json=COMMAND).json()["id"]
        client.put("/schedules/kept", json=HOUR)
    with guarded.client(thief) as client:
        made = client.post("/tokens", json={"name": "hidden", "scopes": ["submit"]}).json()
        assert made["made_by"] == id_in(thief)
        hook = client.post(
            "/webhooks", json={"url": "https://1.1.1.1/x", "name": "spy", "filter": {"queue": ["no-such"]}}
        )
        assert hook.json()["webhook"]["made_by"] == id_in(thief)
        client.put("/schedules/backdoor", json=HOUR)
        client.post("/sessions", json={"name": "spying", "agent": "standin"})
        run = client.post("/runs", json=COMMAND).json()["id"]
    with guarded.client(made["token"]) as client:
        hidden = client.post("/runs", json=COMMAND | {"after": [run]}).json()["id"]
        client.put("/schedules/deeper", json=HOUR)

    with guarded.client(guarded.token("admin")) as client:
        gone = client.delete(f"/tokens/{id_in(thief)}", params={"with_what_it_made": True})

        assert gone.status_code == 200
        ended = gone.json()
        assert ended["tokens"] == [id_in(thief), made["id"]]
        assert sorted(ended["schedules"]) == ["backdoor", "deeper"]
        assert (ended["webhooks"], ended["sessions"]) == (["spy"], ["spying"])
        assert client.delete(f"/tokens/{id_in(thief)}", params={"with_what_it_made": True}).status_code == 404
    assert not {id_in(thief), made["id"]} & {each.id for each in Tokens(guarded.store).all()}
    assert {guarded.records.get(each).state for each in (run, hidden)} <= {"cancelled", "skipped"}
    assert guarded.records.get(kept).state == "pending"
    assert "kept" in {each.name for each in Schedules(guarded.store).all()}


def test_what_a_token_left_that_was_revoked_before_is_ended_by_its_id(guarded: Serving) -> None:
    token = guarded.token("submit")
    with guarded.client(token) as client:
        run = client.post("/runs", json=COMMAND).json()["id"]
    Tokens(guarded.store).revoke(id_in(token))

    ended = RevocableTokens(guarded.store).revoke_tree(id_in(token))

    assert (ended.tokens, ended.runs) == ([], [run])
    assert "was revoked" in str(guarded.records.get(run).outcome)
    with pytest.raises(NotFound, match="nothing that it has made"):
        RevocableTokens(guarded.store).revoke_tree(id_in(token))


@pytest.mark.parametrize("written_by", ["this version", "an earlier version"])
def test_a_result_that_a_token_may_not_read_is_not_handed_to_its_run(guarded: Serving, written_by: str) -> None:
    """It was checked at the submit; the run may be moved afterwards, and what another version wrote was not checked."""
    inner, secret = f"inner-{written_by[:2]}", f"secret-{written_by[:2]}"
    token, queues = guarded.token("submit", "read", queues=[inner, "shared"]), Queues(guarded.store)
    named = guarded.submit(queue="shared")
    call = {"kind": "function", "function": "shop:tax", "queue": inner, "args": [{"$run": named}]}
    if written_by == "this version":
        with guarded.client(token) as client:
            mine = client.post("/runs", json=call).json()["id"]
        Tokens(guarded.store).revoke(token.split("_")[2])
    else:
        with use_token(token.split("_")[2]):
            mine = guarded.queue.submit(RunSpec.checked(**call)).id
    holder, asked = Claim(mine, "", "", ""), {"ids": [named], "given_to": mine}

    with guarded.client(guarded.token("read")) as reader:
        assert [run.id for run in guarded.queue.given(holder, [named])] == [named]
        assert list(reader.post("/records/runs", json=asked).json()["runs"]) == [named]
        queues.move("shared", secret)
        with pytest.raises(NotAllowed, match=f"{named} is in the queue {secret}"):
            guarded.queue.given(holder, [named])
        told = reader.post("/records/runs", json=asked).json()
        assert (told["runs"], told["refused"][named]["status"]) == ({}, 403)
        assert list(reader.post("/records/runs", json={"ids": [named]}).json()["runs"]) == [named]
    # Whoever moves both of them together has said that they belong together.
    queues.move(inner, secret)
    assert [run.id for run in guarded.queue.given(holder, [named])] == [named]
    queues.move(secret, "shared")
