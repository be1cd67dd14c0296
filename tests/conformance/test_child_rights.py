"""What an attempt may give a child of its run: never more than the run has, whichever way the child is asked for."""

from __future__ import annotations

from typing import Any

import pytest
from support.world import World

from agentq.coordinator.bounds import CHILD_DEPTH_MAX, KEEP_MS
from agentq.coordinator.errors import Fenced, NotAllowed, NotNow
from agentq.coordinator.model.agent_options import AgentTurnOptions
from agentq.coordinator.model.ids import new_run_id, partition_of
from agentq.coordinator.model.spec import ResourceLimits, RunSpec
from agentq.coordinator.model.workspace import WorkspaceSpec
from agentq.coordinator.runs.children import AttemptChildren
from agentq.coordinator.runs.merge_progress import MergeProgress
from agentq.coordinator.runs.verbs import Claim
from agentq.coordinator.sessions.verbs import Sessions
from agentq.coordinator.token_context import use_token

AGENT = {"kind": "agent", "agent": "claude", "prompt": "x", "argv": ()}
COMMAND = {"kind": "command", "argv": ("true",)}
TREE = {"repository": "/srv/shop", "base": "main"}
ALL = ("agent", "agent:codex", "command", "function")


def spec_of(fields: dict[str, Any]) -> RunSpec:
    models = {"turn": AgentTurnOptions, "workspace": WorkspaceSpec, "caps": ResourceLimits}
    made = {name: models[name](**value) if name in models else value for name, value in fields.items()}
    return RunSpec.checked(**(AGENT | made))


def held(world: World, near: str | None = None, **fields: Any) -> Claim:
    """A run that a worker has; `near` is one in whose partition it lives."""
    spec = spec_of(fields)
    run = world.queue.submit(spec, run_id=near and new_run_id(partition_of(near))).id
    labels = {f"agent.{agent}": "ready" for agent in ("claude", "codex")} | {"gpu": "yes", "host": "h1"}
    (claim,) = world.worker("w1", spec.queue, labels=labels).claim(1)
    assert claim.id == run
    return claim


def bear(world: World, claim: Claim, **fields: Any) -> str:
    return AttemptChildren(world.queue, claim).submit(spec_of(fields), most=50)


@pytest.mark.parametrize(
    ("own", "child", "why"),
    [
        ({}, {}, None),
        ({}, COMMAND, "name command"),
        ({}, {"kind": "function", "function": "os:getenv"}, "name function"),
        ({}, {"agent": "codex"}, "name agent:codex"),
        ({"may_submit": ()}, {}, "name agent:claude"),
        ({"may_submit": ("agent:codex",)}, {"agent": "codex"}, None),
        ({"may_submit": ("agent:codex",)}, {"agent": "codex", "may_submit": ("agent:claude",)}, "no agent:claude"),
        ({"may_submit": ALL}, {"may_submit": ALL}, None),
        ({"may_submit": ALL}, {"kind": "function", "function": "shop:tax"}, None),
        (COMMAND, COMMAND, "name command"),
        (COMMAND | {"may_submit": ("command",)}, COMMAND, None),
        ({}, {"queue": "b"}, "in the queue default, not in b"),
        ({}, {"priority": 6}, "priority is 5 at the most"),
        ({}, {"fair_key": "boss"}, "fair_key"),
        ({}, {"limits": {"gpu": 1}}, "under the limit gpu"),
        ({"limits": {"gpu": 1}}, {"limits": {"gpu": 2}}, "1 units at the most"),
        ({"limits": {"gpu": 2}}, {"limits": {"gpu": 2}}, None),
        ({"demands": {"gpu": "yes"}}, {}, "demands gpu=yes"),
        ({"demands": {"gpu": "yes"}}, {"demands": {"gpu": "yes", "os": "linux"}}, None),
        ({"timeout_ms": 1000}, {}, "timeout_ms is 1000 at the most"),
        ({"timeout_ms": 1000}, {"timeout_ms": 1001}, "timeout_ms is 1000 at the most"),
        ({"timeout_ms": 1000}, {"timeout_ms": 1000}, None),
        ({"silence_timeout_ms": 1000}, {}, "silence_timeout_ms is 1000"),
        ({}, {"stop_grace_ms": 10**7}, "stop_grace_ms is 10000"),
        ({}, {"keep_ms": KEEP_MS + 1}, f"keep_ms is {KEEP_MS}"),
        ({"keep_ms": 60_000}, {}, "keep_ms is 60000"),
        ({"keep_ms": 60_000}, {"keep_ms": 60_000}, None),
        ({"caps": {"memory_bytes": 1000}}, {}, "caps.memory_bytes is 1000"),
        ({"caps": {"memory_bytes": 1000}}, {"caps": {"memory_bytes": 1001}}, "caps.memory_bytes is 1000"),
        ({"caps": {"memory_bytes": 1000, "nice": 5}}, {"caps": {"memory_bytes": 999, "nice": 6}}, None),
        ({"caps": {"nice": 5}}, {"caps": {"nice": 4}}, "caps.nice is 5"),
        ({"caps": {"umask": 0o77}}, {"caps": {"umask": 0o177}}, "caps.umask"),
        ({"turn": {"permissions": "read"}}, {}, "permissions are read"),
        ({}, {"turn": {"permissions": "full"}}, "permissions are edit"),
        ({"turn": {"permissions": "full"}}, {"turn": {"permissions": "full"}}, None),
        ({}, {"turn": {"trust": "repo"}}, "does not trust"),
        ({"turn": {"account": "home"}}, {"turn": {"account": "work"}}, "account is that of its parent, home"),
        ({}, {"turn": {"account": "work"}}, "account is that of its parent"),
        ({"turn": {"budgets": {"cost_usd": 2.5}}}, {}, "budget is 2.5 for cost_usd"),
        ({"turn": {"budgets": {"cost_usd": 2.5}}}, {"turn": {"budgets": {"cost_usd": 2.6}}}, "budget is 2.5"),
        ({"turn": {"budgets": {"cost_usd": 2.5}}}, {"turn": {"budgets": {"cost_usd": 1.0, "turns": 1}}}, None),
        ({}, {"env": {"LD_PRELOAD": "x.so"}}, "variable of its own, such as LD_PRELOAD"),
        ({"env": {"MINE": "1"}}, {"env": {"MINE": "1"}}, None),
        ({"turn": {"permissions": "full"}}, {"env": {"MINE": "1"}}, None),
        ({}, {"cwd": "/etc"}, "no cwd"),
        ({"cwd": "/srv/a"}, {}, "cwd is in that of its parent, /srv/a"),
        ({"cwd": "/srv/a"}, {"cwd": "/srv/a"}, None),
        ({"cwd": "/srv/a"}, {"cwd": "/srv/a/b"}, None),
        ({"cwd": "/srv/a"}, {"cwd": "/srv/ab"}, "cwd is in"),
        ({"cwd": "/srv/a"}, {"cwd": "/srv/a/../b"}, "cwd is in"),
        ({"cwd": "/"}, {"cwd": "/srv"}, None),
        ({"cwd": "/srv/a", "turn": {"permissions": "full"}}, {"cwd": "/"}, None),
        ({}, {"workspace": TREE}, "no workspace but that of its parent"),
        ({"workspace": TREE}, {"workspace": TREE}, None),
        ({"workspace": TREE}, {"workspace": TREE | {"setup": ("sh",)}}, "no workspace but"),
        ({"workspace": TREE}, {"workspace": TREE | {"push": True}}, "no workspace but"),
        ({"workspace": TREE | {"setup": ("sh",)}}, {"workspace": TREE}, "no workspace but"),
        ({"workspace": TREE, "cwd": "web"}, {"workspace": TREE}, "cwd is in"),
        ({"workspace": TREE, "cwd": "web"}, {"workspace": TREE, "cwd": "web/js"}, None),
        ({"workspace": TREE}, {"cwd": "."}, "workspace of its parent"),
        ({}, {"retry": None, "labels": {"a": "b"}, "notes": {"deep": [[{}]]}, "delay_ms": 5, "expires_ms": 9}, None),
    ],
)
def test_a_child_has_at_most_what_its_parent_has(
    world: World, own: dict[str, Any], child: dict[str, Any], why: str | None
) -> None:
    claim = held(world, **own)

    if why is None:
        assert world.get(bear(world, claim, **child)).spec.parent == claim.id
    else:
        with world.unchanged(), pytest.raises(NotAllowed, match=f"permissions of its parent: .*{why}"):
            bear(world, claim, **child)


@pytest.mark.parametrize("name", ["plan", "session", "dedupe_key"])
def test_a_child_is_in_nothing_that_is_of_others(world: World, name: str) -> None:
    with pytest.raises(NotAllowed, match=f"no {name}"):
        bear(world, held(world), **{name: "x"})


def test_a_child_names_only_its_siblings_and_what_its_parent_was_given(world: World) -> None:
    given = world.submit(queue="b")
    other = world.submit(queue="b", after=[given])
    claim = held(world, given, inputs={"it": given}, may_submit=ALL)
    sibling = bear(world, claim)

    for run, allowed in ((other, False), (claim.id, False), (sibling, True), (given, True)):
        call = {"kind": "function", "function": "shop:tax"}
        for fields in (
            {"after": [run]},
            {"inputs": {"its": run}},
            call | {"args": ({"$run": run},)},
            call | {"kwargs": {"of": [{"deep": {"$run": run}}]}},
            call | {"kwargs": {"of": {"$run": run}}, "timeout_ms": 5},
        ):
            if allowed:
                bear(world, claim, **fields)
            else:
                with world.unchanged(), pytest.raises(NotAllowed, match=f"the run {run} is neither"):
                    bear(world, claim, **fields)


def test_a_child_may_work_in_the_worktree_that_its_parent_works_in(world: World) -> None:
    claim = held(world, workspace=TREE)
    tree = f"/home/me/worktrees/shop/{claim.id}"

    world.queue.intend(claim, MergeProgress(step="prepared", host="h1", worktree="/home/me/other"))
    with pytest.raises(NotAllowed, match="workspace of its parent"):
        bear(world, claim, cwd="/home/me/other")
    world.queue.intend(claim, MergeProgress(step="prepared", host="h1", worktree=tree))
    bear(world, claim, cwd=f"{tree}/web")
    with pytest.raises(NotAllowed, match="cwd is in"):
        bear(world, claim, cwd="/home/me/worktrees/shop/other")


@pytest.mark.parametrize("folder", [None, "/srv/shop"])
def test_a_child_of_a_turn_works_in_the_folder_of_the_conversation(world: World, folder: str | None) -> None:
    Sessions(world.store).new("chat", "claude", cwd=folder)
    claim = held(world, session="chat")

    bear(world, claim, cwd=folder)
    with world.unchanged(), pytest.raises(NotAllowed, match="cwd is in" if folder else "no cwd"):
        bear(world, claim, cwd="/srv/other")


def test_generations_come_to_an_end_and_a_superseded_attempt_has_no_more_children(world: World) -> None:
    claim = held(world)
    for generation in range(CHILD_DEPTH_MAX):
        child = bear(world, claim)
        (claim,) = world.worker(f"of-{generation}", labels={"agent.claude": "ready"}).claim(1)
        assert claim.id == child
    with world.unchanged(), pytest.raises(NotNow, match=f"deeper than {CHILD_DEPTH_MAX} generations"):
        bear(world, claim)

    world.queue.release(claim)
    with world.unchanged(), pytest.raises(Fenced, match="was superseded"):
        bear(world, claim, queue="b")


def test_a_child_of_a_parent_in_turns_has_its_key_and_its_own_demands(world: World) -> None:
    claim = held(world, fair_key="me", demands={"host": "h1"})

    bear(world, claim, fair_key="me", demands={"host": "h1"})
    with pytest.raises(NotAllowed, match="fair_key"):
        bear(world, claim, demands={"host": "h1"})
    with pytest.raises(NotAllowed, match="demands host=h1"):
        bear(world, claim, fair_key="me", demands={"host": "h2"})


def test_a_child_is_given_results_of_no_queue_that_the_token_of_its_parent_may_not_read(world: World) -> None:
    """Whoever asks for the child: the worker that does so may have a token for more."""
    with use_token("3f09c2ab41d7", "default"):
        claim = held(world, may_submit=("command",))
    others = {queue: world.queue.submit(spec_of(COMMAND | {"queue": queue})).id for queue in ("default", "b")}
    with use_token("a1b2c3d4e5f6", "default", "b"):
        child = bear(world, claim, **COMMAND)
    for run in (claim.id, child):
        holder = Claim(run, "", "", "")
        assert [each.id for each in world.queue.given(holder, [others["default"], new_run_id()])] == [others["default"]]
        with pytest.raises(NotAllowed, match=f"{others['b']} is in the queue b"):
            world.queue.given(holder, list(others.values()))
