"""The agent socket: an agent reaches its own run and its children through it, and nothing else."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.agent_socket import AdmittedRun
from support.agent_socket import admitted as admitted

from agentq.coordinator import bounds
from agentq.coordinator.config.settings import Settings
from agentq.coordinator.model.spec import Outcome
from agentq.coordinator.runs.children import WorkerChildren
from agentq.coordinator.runs.logs import LogChunk
from agentq.coordinator.runs.verbs import Claim, RunVerbs
from agentq.worker.run_api.agent_requests import ReadLogRequest
from agentq.worker.run_api.agent_socket import AgentSocket


def test_an_agent_has_a_child_and_looks_after_it(admitted: Callable[..., None]) -> None:
    async def test(admitted: AdmittedRun) -> None:
        child = (await admitted.child(name="mine"))["id"]
        run = admitted.world.records.get(child)
        assert (run.spec.parent, run.spec.queue, run.spec.priority) == (admitted.run, "default", 5)

        assert (await admitted.ask(verb="show", run=child))["run"]["state"] == "pending"
        assert (await admitted.ask(verb="show", run=admitted.run))["run"]["id"] == admitted.run
        waiting = asyncio.ensure_future(admitted.ask(verb="wait", run=child))
        assert (await admitted.ask(verb="cancel", run=child, reason="enough"))["state"] == "cancelled"
        assert (await waiting)["run"]["outcome"]["error"] == "enough"
        assert await admitted.ask(verb="logs", run=child) == {"ok": True, "entries": [], "more": False}
        assert await admitted.ask(verb="progress", progress={"done": 1, "of": 4}) == {"ok": True}
        assert admitted.told == [{"done": 1, "of": 4, "fraction": 0.25}]

    admitted(test)


def test_it_reaches_no_run_but_its_own(admitted: Callable[..., None]) -> None:
    async def test(admitted: AdmittedRun) -> None:
        foreign = admitted.world.submit()
        unknown = foreign[:-1] + ("0" if foreign[-1] != "0" else "1")
        for run in (foreign, unknown):
            for verb in ("show", "wait", "logs", "cancel"):
                answer = await admitted.ask(verb=verb, run=run)
                assert (answer["ok"], answer["code"]) == (False, 4)
                assert answer["error"] == f"The run {run} is neither {admitted.run} nor a child of it."
        assert (await admitted.ask(verb="cancel", run=admitted.run))["code"] == 4
        assert (await admitted.child(after=[foreign]))["code"] == 4
        assert admitted.world.records.get(foreign).state == "pending"

    admitted(test)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"parent": "{foreign}"}, "children of its own only"),
        ({"queue": "other"}, "in the queue default, not in other"),
        ({"priority": 6}, "priority is 5 at the most"),
        ({"fair_key": "boss"}, "its fair_key is that of its parent"),
        ({"plan": "p"}, "has no plan"),
        ({"session": "s"}, "has no session"),
        ({"dedupe_key": "k", "if_live": "replace"}, "has no dedupe_key"),
        ({"limits": {"gpu": 1}}, "under the limit gpu"),
    ],
)
def test_a_child_does_not_reach_what_is_of_others(
    admitted: Callable[..., None], fields: dict[str, Any], error: str
) -> None:
    async def test(admitted: AdmittedRun) -> None:
        foreign = admitted.world.submit()
        given = {name: foreign if value == "{foreign}" else value for name, value in fields.items()}
        with admitted.world.unchanged():
            answer = await admitted.child(**given)
        assert (answer["ok"], answer["code"]) == (False, 4)
        assert error in answer["error"]

    admitted(test)


@pytest.mark.parametrize(
    ("own", "child", "allowed"),
    [
        ({"permissions": "full"}, {"kind": "command", "argv": ["true"]}, True),
        ({"permissions": "edit"}, {"kind": "function", "function": "shop:tax"}, False),
        ({"permissions": "read"}, {"turn": {"permissions": "edit"}}, False),
        ({"permissions": "read"}, {}, False),  # which is `edit`
        ({"permissions": "edit"}, {"turn": {"permissions": "read"}}, True),
        ({"permissions": "edit"}, {"turn": {"permissions": "full"}}, False),
        ({"permissions": "full"}, {"turn": {"trust": "repo"}}, False),
        ({"permissions": "full", "trust": "repo"}, {"turn": {"trust": "repo"}}, True),
        ({"permissions": "edit"}, {"env": {"LD_PRELOAD": "./x.so"}}, False),
        ({"permissions": "edit"}, {"env": {"MINE": "1"}}, True),
        ({"permissions": "edit"}, {"env": {"MINE": "2"}}, False),
        ({"permissions": "full"}, {"env": {"MINE": "2"}}, True),
        ({"permissions": "edit"}, {"cwd": "/"}, False),
        ({"permissions": "edit"}, {"cwd": "/usr/lib/../share"}, False),
        ({"permissions": "edit"}, {"cwd": "/usr/lib/x"}, True),
        ({"permissions": "full"}, {"cwd": "/"}, True),
        ({"permissions": "full", "account": "home"}, {"turn": {"account": "work"}}, False),
        ({"permissions": "full", "budgets": {"cost_usd": 2.0}}, {"turn": {"budgets": {"cost_usd": 3.0}}}, False),
        ({"permissions": "full", "budgets": {"cost_usd": 2.0}}, {"turn": {"budgets": {"tokens": 3}}}, False),
        ({"permissions": "full", "budgets": {"cost_usd": 2.0}}, {"turn": {"budgets": {"cost_usd": 1.0}}}, True),
    ],
)
def test_a_child_may_do_no_more_than_its_parent(
    admitted: Callable[..., None], own: dict[str, str], child: dict[str, Any], allowed: bool
) -> None:
    async def test(admitted: AdmittedRun) -> None:
        spec = child if "kind" in child else {"kind": "agent", "agent": "claude", "prompt": "y", **child}
        answer = await admitted.ask(verb="submit", spec=spec)
        assert answer["ok"] is allowed, answer
        assert allowed or answer["code"] == 4

    admitted(test, turn=own, cwd="/usr/lib", env={"MINE": "1"})


def test_what_its_parent_has_a_child_has_without_asking(admitted: Callable[..., None]) -> None:
    async def test(admitted: AdmittedRun) -> None:
        run = admitted.world.records.get((await admitted.child(limits={"gpu": 1}))["id"])
        assert (run.spec.priority, run.spec.fair_key) == (3, "me")

    admitted(test, priority=3, fair_key="me", limits={"gpu": 2})


def test_a_child_is_where_its_parent_is_and_pays_as_it_does(admitted: Callable[..., None]) -> None:
    own = {"permissions": "edit", "account": "home", "budgets": {"cost_usd": 2.0}}

    async def test(admitted: AdmittedRun) -> None:
        answer = await admitted.ask(verb="submit", spec={"kind": "agent", "agent": "claude", "prompt": "y"})
        run = admitted.world.records.get(answer["id"])
        assert run.spec.cwd == "/usr/lib"
        assert run.spec.turn is not None
        assert run.spec.turn.model_dump(exclude_unset=True) == {"account": "home", "budgets": {"cost_usd": 2.0}}

    admitted(test, turn=own, cwd="/usr/lib")


def test_a_child_is_in_its_parents_folder_by_the_name_that_its_parent_was_given(
    admitted: Callable[..., None], folder: Path
) -> None:
    """What asks knows its folder by the name without links."""
    (folder / "real" / "inner").mkdir(parents=True)
    (folder / "link").symlink_to(folder / "real")
    (folder / "real" / "out").symlink_to("/usr")

    async def test(admitted: AdmittedRun) -> None:
        agent = {"kind": "agent", "agent": "claude", "prompt": "y"}
        answer = await admitted.ask(verb="submit", spec=agent | {"cwd": f"{folder}/real/inner"})
        assert admitted.world.records.get(answer["id"]).spec.cwd == f"{folder}/link/inner"
        assert (await admitted.ask(verb="submit", spec=agent | {"cwd": f"{folder}/link/out"}))["code"] == 4
        tree = {"repository": "/srv/shop", "base": "main", "setup": ["sh"]}
        assert (await admitted.ask(verb="submit", spec=agent | {"workspace": tree, "cwd": "."}))["code"] == 4

    admitted(test, cwd=f"{folder}/link", turn={"permissions": "edit"})


def test_a_child_of_a_run_that_works_at_home_does_so_too(admitted: Callable[..., None]) -> None:
    async def test(admitted: AdmittedRun) -> None:
        agent = {"kind": "agent", "agent": "claude", "prompt": "y"}
        answer = await admitted.ask(verb="submit", spec=agent | {"cwd": str(Path.home())})
        assert admitted.world.records.get(answer["id"]).spec.cwd is None
        assert (await admitted.ask(verb="submit", spec=agent | {"agent": "standin"}))["code"] == 4

    admitted(test, turn={"permissions": "edit"})


def test_the_address_of_the_server_is_not_told_over_the_socket(admitted: Callable[..., None], folder: Path) -> None:
    address = f"unix://{folder}/nobody-answers-here"

    async def test(admitted: AdmittedRun) -> None:
        child = (await admitted.child())["id"]
        assert (await admitted.ask(verb="logs", run=child, after="nonsense"))["code"] == 2
        await admitted.socket.close()
        admitted.socket = AgentSocket(WorkerChildren(RunVerbs.open(Settings(url=address))), folder / "sockets")
        await admitted.open()
        answer = await admitted.ask(verb="show", run=child)
        assert (answer["ok"], answer["code"]) == (False, 3)
        assert answer["error"] == "The server cannot do that at the moment; try again."

    admitted(test)


def test_an_attempt_that_was_superseded_has_no_children_and_ends_none(admitted: Callable[..., None]) -> None:
    """Its worker does not know yet; the server does."""

    async def test(admitted: AdmittedRun) -> None:
        child = (await admitted.child())["id"]
        admitted.world.queue.release(admitted.claim)
        for answer in (await admitted.child(), await admitted.ask(verb="cancel", run=child)):
            assert (answer["ok"], answer["code"]) == (False, 5)
            assert "was superseded" in answer["error"]
        assert admitted.world.records.get(child).state == "pending"

    admitted(test)


def test_there_is_an_end_to_children_and_to_generations(
    admitted: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentq.coordinator.bounds.CHILDREN_PER_AGENT", 3)

    async def test(admitted: AdmittedRun) -> None:
        answers = [await admitted.child() for _ in range(4)]
        assert [answer["ok"] for answer in answers] == [True, True, True, False]
        assert answers[3]["code"] == 75
        last = answers[0]["id"]
        for _ in range(bounds.CHILD_DEPTH_MAX - 1):
            last = admitted.world.submit(parent=last)
        claims = {claim.id: claim for claim in admitted.worker.claim(9)}
        entry = await admitted.socket.admit(claims[last], admitted.world.records.get(last).spec, print)
        answer = await admitted.ask(
            as_=last, token=entry["AGENTQ_TOKEN"], verb="submit", spec={"kind": "command", "argv": ["true"]}
        )
        assert answer["code"] == 75
        assert "generations of agents" in answer["error"]

    admitted(test)


def test_no_other_token_opens(admitted: Callable[..., None]) -> None:
    async def test(admitted: AdmittedRun) -> None:
        token = admitted.entry["AGENTQ_TOKEN"]
        assert len(token) >= 40
        wrong = [token[:-1], token + "a", secrets.token_urlsafe(32), "é"]
        answers = [await admitted.ask(token=each, verb="show", run=admitted.run) for each in wrong]
        answers.append(await admitted.ask(as_=admitted.world.submit(), verb="show", run=admitted.run))
        assert {(answer["code"], answer["error"]) for answer in answers} == {
            (4, "This token is invalid: it belongs to no run that this worker holds now.")
        }
        assert token not in str(vars(admitted.socket)), "only its hash is kept"

    admitted(test)


def test_a_token_is_good_for_one_attempt_only(admitted: Callable[..., None]) -> None:
    async def test(admitted: AdmittedRun) -> None:
        old, stale = admitted.entry["AGENTQ_TOKEN"], admitted.claim
        world = admitted.world
        world.queue.release(stale)
        (admitted.claim,) = admitted.worker.claim(1)
        await admitted.open()
        admitted.socket.revoke(stale)  # the earlier one ends after that
        assert (await admitted.ask(token=old, verb="show", run=admitted.run))["code"] == 4
        assert (await admitted.ask(verb="show", run=admitted.run))["ok"]
        waiting = asyncio.ensure_future(admitted.ask(verb="wait", run=admitted.run))
        while not any(guest.requests for guest in admitted.socket._attempts.values()):
            await asyncio.sleep(0)
        admitted.socket.revoke(admitted.claim)
        assert await waiting == {}
        assert (await admitted.ask(verb="show", run=admitted.run))["code"] == 4

    admitted(test)


def test_a_long_log_comes_in_pieces(admitted: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentq.worker.run_api.agent_requests.LOG_CHARACTERS", 100)

    async def test(admitted: AdmittedRun) -> None:
        child = (await admitted.child())["id"]
        (claim,) = admitted.worker.claim(1)
        for number in range(1, 4):
            admitted.world.queue.log(claim, number, [LogChunk("out", f"{number}" * 100)])
        text, place, more = "", ReadLogRequest.model_fields["after"].default, True
        while more:
            answer = await admitted.ask(verb="logs", run=child, after=place)
            more = answer["more"]
            for entry in answer["entries"]:
                text, place = text + entry["text"], entry["id"]
        assert text == "1" * 100 + "2" * 100 + "3" * 100
        admitted.world.queue.finish([(claim, Outcome())])

    admitted(test)


def test_the_name_of_a_claim_is_enough_to_leave(admitted: Callable[..., None]) -> None:
    async def test(admitted: AdmittedRun) -> None:
        admitted.socket.revoke(Claim("run_nobody", "1-a", "", ""))
        assert (await admitted.child())["ok"]

    admitted(test)
