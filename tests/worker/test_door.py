"""The run's own door: an agent reaches its own run and its children through it, and nothing else."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.agent_socket import Lodge
from support.agent_socket import lodge as lodge

from agentq.coordinator import bounds
from agentq.coordinator.config.settings import Settings
from agentq.coordinator.model.spec import Outcome
from agentq.coordinator.runs.children import WorkerChildren
from agentq.coordinator.runs.logs import LogChunk
from agentq.coordinator.runs.verbs import Claim, RunVerbs
from agentq.worker.run_api.agent_requests import ReadLogRequest
from agentq.worker.run_api.agent_socket import AgentSocket


def test_an_agent_has_a_child_and_looks_after_it(lodge: Callable[..., None]) -> None:
    async def test(lodge: Lodge) -> None:
        child = (await lodge.child(name="mine"))["id"]
        run = lodge.world.records.get(child)
        assert (run.spec.parent, run.spec.queue, run.spec.priority) == (lodge.run, "default", 5)

        assert (await lodge.ask(verb="show", run=child))["run"]["state"] == "pending"
        assert (await lodge.ask(verb="show", run=lodge.run))["run"]["id"] == lodge.run
        waiting = asyncio.ensure_future(lodge.ask(verb="wait", run=child))
        assert (await lodge.ask(verb="cancel", run=child, reason="enough"))["state"] == "cancelled"
        assert (await waiting)["run"]["outcome"]["error"] == "enough"
        assert await lodge.ask(verb="logs", run=child) == {"ok": True, "entries": [], "more": False}
        assert await lodge.ask(verb="progress", progress={"done": 1, "of": 4}) == {"ok": True}
        assert lodge.told == [{"done": 1, "of": 4, "fraction": 0.25}]

    lodge(test)


def test_it_reaches_no_run_but_its_own(lodge: Callable[..., None]) -> None:
    async def test(lodge: Lodge) -> None:
        foreign = lodge.world.submit()
        unknown = foreign[:-1] + ("0" if foreign[-1] != "0" else "1")
        for run in (foreign, unknown):
            for verb in ("show", "wait", "logs", "cancel"):
                answer = await lodge.ask(verb=verb, run=run)
                assert (answer["ok"], answer["code"]) == (False, 4)
                assert answer["error"] == f"The run {run} is neither {lodge.run} nor a child of it."
        assert (await lodge.ask(verb="cancel", run=lodge.run))["code"] == 4
        assert (await lodge.child(after=[foreign]))["code"] == 4
        assert lodge.world.records.get(foreign).state == "pending"

    lodge(test)


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
    lodge: Callable[..., None], fields: dict[str, Any], error: str
) -> None:
    async def test(lodge: Lodge) -> None:
        foreign = lodge.world.submit()
        given = {name: foreign if value == "{foreign}" else value for name, value in fields.items()}
        with lodge.world.unchanged():
            answer = await lodge.child(**given)
        assert (answer["ok"], answer["code"]) == (False, 4)
        assert error in answer["error"]

    lodge(test)


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
    lodge: Callable[..., None], own: dict[str, str], child: dict[str, Any], allowed: bool
) -> None:
    async def test(lodge: Lodge) -> None:
        spec = child if "kind" in child else {"kind": "agent", "agent": "claude", "prompt": "y", **child}
        answer = await lodge.ask(verb="submit", spec=spec)
        assert answer["ok"] is allowed, answer
        assert allowed or answer["code"] == 4

    lodge(test, turn=own, cwd="/usr/lib", env={"MINE": "1"})


def test_what_its_parent_has_a_child_has_without_asking(lodge: Callable[..., None]) -> None:
    async def test(lodge: Lodge) -> None:
        run = lodge.world.records.get((await lodge.child(limits={"gpu": 1}))["id"])
        assert (run.spec.priority, run.spec.fair_key) == (3, "me")

    lodge(test, priority=3, fair_key="me", limits={"gpu": 2})


def test_a_child_is_where_its_parent_is_and_pays_as_it_does(lodge: Callable[..., None]) -> None:
    own = {"permissions": "edit", "account": "home", "budgets": {"cost_usd": 2.0}}

    async def test(lodge: Lodge) -> None:
        answer = await lodge.ask(verb="submit", spec={"kind": "agent", "agent": "claude", "prompt": "y"})
        run = lodge.world.records.get(answer["id"])
        assert run.spec.cwd == "/usr/lib"
        assert run.spec.turn is not None
        assert run.spec.turn.model_dump(exclude_unset=True) == {"account": "home", "budgets": {"cost_usd": 2.0}}

    lodge(test, turn=own, cwd="/usr/lib")


def test_a_child_is_in_its_parents_folder_by_the_name_that_its_parent_was_given(
    lodge: Callable[..., None], folder: Path
) -> None:
    """What asks knows its folder by the name without links."""
    (folder / "real" / "inner").mkdir(parents=True)
    (folder / "link").symlink_to(folder / "real")
    (folder / "real" / "out").symlink_to("/usr")

    async def test(lodge: Lodge) -> None:
        agent = {"kind": "agent", "agent": "claude", "prompt": "y"}
        answer = await lodge.ask(verb="submit", spec=agent | {"cwd": f"{folder}/real/inner"})
        assert lodge.world.records.get(answer["id"]).spec.cwd == f"{folder}/link/inner"
        assert (await lodge.ask(verb="submit", spec=agent | {"cwd": f"{folder}/link/out"}))["code"] == 4
        tree = {"repository": "/srv/shop", "base": "main", "setup": ["sh"]}
        assert (await lodge.ask(verb="submit", spec=agent | {"workspace": tree, "cwd": "."}))["code"] == 4

    lodge(test, cwd=f"{folder}/link", turn={"permissions": "edit"})


def test_a_child_of_a_run_that_works_at_home_does_so_too(lodge: Callable[..., None]) -> None:
    async def test(lodge: Lodge) -> None:
        agent = {"kind": "agent", "agent": "claude", "prompt": "y"}
        answer = await lodge.ask(verb="submit", spec=agent | {"cwd": str(Path.home())})
        assert lodge.world.records.get(answer["id"]).spec.cwd is None
        assert (await lodge.ask(verb="submit", spec=agent | {"agent": "standin"}))["code"] == 4

    lodge(test, turn={"permissions": "edit"})


def test_the_address_of_the_server_is_not_told_at_the_door(lodge: Callable[..., None], folder: Path) -> None:
    address = f"unix://{folder}/nobody-answers-here"

    async def test(lodge: Lodge) -> None:
        child = (await lodge.child())["id"]
        assert (await lodge.ask(verb="logs", run=child, after="nonsense"))["code"] == 2
        await lodge.door.close()
        lodge.door = AgentSocket(WorkerChildren(RunVerbs.open(Settings(url=address))), folder / "doors")
        await lodge.open()
        answer = await lodge.ask(verb="show", run=child)
        assert (answer["ok"], answer["code"]) == (False, 3)
        assert answer["error"] == "The server cannot do that at the moment; try again."

    lodge(test)


def test_an_attempt_that_was_superseded_has_no_children_and_ends_none(lodge: Callable[..., None]) -> None:
    """Its worker does not know yet; the server does."""

    async def test(lodge: Lodge) -> None:
        child = (await lodge.child())["id"]
        lodge.world.queue.release(lodge.claim)
        for answer in (await lodge.child(), await lodge.ask(verb="cancel", run=child)):
            assert (answer["ok"], answer["code"]) == (False, 5)
            assert "was superseded" in answer["error"]
        assert lodge.world.records.get(child).state == "pending"

    lodge(test)


def test_there_is_an_end_to_children_and_to_generations(
    lodge: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentq.coordinator.bounds.CHILDREN_PER_AGENT", 3)

    async def test(lodge: Lodge) -> None:
        answers = [await lodge.child() for _ in range(4)]
        assert [answer["ok"] for answer in answers] == [True, True, True, False]
        assert answers[3]["code"] == 75
        last = answers[0]["id"]
        for _ in range(bounds.CHILD_DEPTH_MAX - 1):
            last = lodge.world.submit(parent=last)
        claims = {claim.id: claim for claim in lodge.worker.claim(9)}
        entry = await lodge.door.admit(claims[last], lodge.world.records.get(last).spec, print)
        answer = await lodge.ask(
            as_=last, token=entry["AGENTQ_TOKEN"], verb="submit", spec={"kind": "command", "argv": ["true"]}
        )
        assert answer["code"] == 75
        assert "generations of agents" in answer["error"]

    lodge(test)


def test_no_other_token_opens(lodge: Callable[..., None]) -> None:
    async def test(lodge: Lodge) -> None:
        token = lodge.entry["AGENTQ_TOKEN"]
        assert len(token) >= 40
        wrong = [token[:-1], token + "a", secrets.token_urlsafe(32), "é"]
        answers = [await lodge.ask(token=each, verb="show", run=lodge.run) for each in wrong]
        answers.append(await lodge.ask(as_=lodge.world.submit(), verb="show", run=lodge.run))
        assert {(answer["code"], answer["error"]) for answer in answers} == {
            (4, "This token is invalid: it belongs to no run that this worker holds now.")
        }
        assert token not in str(vars(lodge.door)), "only its hash is kept"

    lodge(test)


def test_a_token_is_good_for_one_attempt_only(lodge: Callable[..., None]) -> None:
    async def test(lodge: Lodge) -> None:
        old, stale = lodge.entry["AGENTQ_TOKEN"], lodge.claim
        world = lodge.world
        world.queue.release(stale)
        (lodge.claim,) = lodge.worker.claim(1)
        await lodge.open()
        lodge.door.revoke(stale)  # the earlier one ends after that
        assert (await lodge.ask(token=old, verb="show", run=lodge.run))["code"] == 4
        assert (await lodge.ask(verb="show", run=lodge.run))["ok"]
        waiting = asyncio.ensure_future(lodge.ask(verb="wait", run=lodge.run))
        while not any(guest.requests for guest in lodge.door._attempts.values()):
            await asyncio.sleep(0)
        lodge.door.revoke(lodge.claim)
        assert await waiting == {}
        assert (await lodge.ask(verb="show", run=lodge.run))["code"] == 4

    lodge(test)


def test_a_long_log_comes_in_pieces(lodge: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentq.worker.run_api.agent_requests.LOG_CHARACTERS", 100)

    async def test(lodge: Lodge) -> None:
        child = (await lodge.child())["id"]
        (claim,) = lodge.worker.claim(1)
        for number in range(1, 4):
            lodge.world.queue.log(claim, number, [LogChunk("out", f"{number}" * 100)])
        text, place, more = "", ReadLogRequest.model_fields["after"].default, True
        while more:
            answer = await lodge.ask(verb="logs", run=child, after=place)
            more = answer["more"]
            for entry in answer["entries"]:
                text, place = text + entry["text"], entry["id"]
        assert text == "1" * 100 + "2" * 100 + "3" * 100
        lodge.world.queue.finish([(claim, Outcome())])

    lodge(test)


def test_the_name_of_a_claim_is_enough_to_leave(lodge: Callable[..., None]) -> None:
    async def test(lodge: Lodge) -> None:
        lodge.door.revoke(Claim("run_nobody", "1-a", "", ""))
        assert (await lodge.child())["ok"]

    lodge(test)
