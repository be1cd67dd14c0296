"""What runs demand, what workers have, and who takes what."""

from __future__ import annotations

import pytest
from support.world import World

from agentq.coordinator.errors import Invalid
from agentq.coordinator.explain.run import RunExplanation
from agentq.coordinator.model.demands import (
    demands_any_label,
    format_demands,
    meets_demands,
    suggest_worker,
    unmet_demands,
)
from agentq.coordinator.model.spec import RunSpec, parse_lane, parse_spec
from agentq.coordinator.workers.lease import WorkerLease

MEETS = [
    ("a100", "a100", True),
    ("a100", "h100", False),
    (None, "a100", False),
    ("a", "a|b", True),
    ("b", "a|b", True),
    ("c", "a|b", False),
    (None, "a|b", False),
    ("a", "!=a", False),
    ("b", "!=a", True),
    (None, "!=a", True),
    ("b", "!=a|b", False),
    ("0.2", ">=0.2", True),
    ("0.10.1", ">=0.9", True),
    ("0.9", ">=0.10", False),
    ("1", ">=1.0.0", True),
    ("1.0", ">=1", True),
    ("1.0.0", ">=1.0.1", False),
    ("0.2.0.dev1+g1", ">=0.2", True),
    ("80GB", ">=64", True),
    ("many", ">=0", False),
    (None, ">=0", False),
    (">=2", "2", False),
]


@pytest.mark.parametrize(("label", "demand", "met"), MEETS)
def test_a_demand_is_met_by_a_label_that_fits(label: str | None, demand: str, met: bool) -> None:
    assert meets_demands({"other": "x"} if label is None else {"x": label}, {"x": demand}) is met


def command(**demands: str) -> RunSpec:
    return RunSpec.checked(kind="command", argv=["true"], demands=demands)


@pytest.mark.parametrize("demand", ["a", "a|b", "!=a", "!=a|b.c", ">=2", ">=0.2.10", "x/y@z+1-2"])
def test_a_lane_tells_every_kind_of_demand(demand: str) -> None:
    spec = command(zone=demand, gpu="1")

    assert parse_lane(spec.lane)["demands"] == {"zone": demand, "gpu": "1"}
    assert parse_spec(spec.to_wire().decode(), spec.lane) == spec


def test_alternatives_are_one_lane_in_whatever_order_they_are_given() -> None:
    assert command(zone="b|a|b").lane == command(zone="a|b").lane == "default:5:zone=a|b"
    assert command(zone="!=b|a").lane == command(zone="!=a|b").lane


NONE = ("", "|", "a|", "|a", "a||b", "a,b", "a=b", "a b", "a:b", "a\n", "|".join("abcdefghijklmnopq"))
NO_OPERATION = ("!=", "!a", ">=", ">=x", ">2", "<2", ">=1|2", "!=>=1")


@pytest.mark.parametrize("demand", [*NONE, *NO_OPERATION])
def test_what_is_no_demand_is_refused(demand: str) -> None:
    with pytest.raises(Invalid, match=r"demands\.zone: name a value"):
        command(zone=demand)


def taken(lease: WorkerLease, *runs: str) -> list[str]:
    """Which of the runs a worker claims."""
    claimed = {claim.id for claim in lease.claim(100)}
    return [run for run in runs if run in claimed]


def test_a_worker_takes_what_its_labels_meet(world: World) -> None:
    either, neither = world.submit(demands={"zone": "a|b"}), world.submit(demands={"zone": "!=a|b"})
    large, small = world.submit(demands={"memory": ">=64"}), world.submit(demands={"memory": ">=8"})
    both = world.submit(demands={"zone": "b|c", "memory": ">=16"})
    every = (either, neither, large, small, both)

    assert taken(world.worker("w1", labels={"zone": "b", "memory": "16"}), *every) == [either, small, both]
    assert taken(world.worker("w2", labels={"memory": "128"}), *every) == [neither, large]


def test_a_worker_that_takes_only_what_asks_for_it_is_not_filled_with_the_rest(world: World) -> None:
    plain, gpu = world.submit(), world.submit(demands={"gpu": "a100|h100"})
    avoiding, recent = world.submit(demands={"gpu": "!=t4"}), world.submit(demands={"version": ">=0.1"})
    every = (plain, gpu, avoiding, recent)
    labels = {"gpu": "a100", "version": "0.2", "host": "h"}

    assert taken(world.worker("box", labels=labels, only_matching=True), *every) == [gpu]
    assert taken(world.worker("any", labels=labels), *every) == [plain, avoiding, recent]


def test_the_workers_of_a_plan_take_nothing_else_though_it_is_addressed_to_their_host() -> None:
    labels = {"host": "h", "agentq.plan": "p-1"}

    assert demands_any_label(labels, {"host": "h", "agentq.plan": "p-1"})
    assert not demands_any_label(labels, {"host": "h"})
    assert not demands_any_label(labels, {"host": "h", "agentq.plan": "p-2"})
    assert "`agentq resume p-2` continues it" in suggest_worker("default", {"agentq.plan": "p-2"})


def test_it_takes_what_is_addressed_to_its_host_or_to_itself_and_no_agent_s_run_for_that_alone() -> None:
    labels = {"host": "h", "worker": "w-1", "version": "1", "agent.claude": "ready"}

    assert demands_any_label(labels, {"host": "h"})
    assert demands_any_label(labels, {"worker": "w-1"})
    assert demands_any_label(labels, {"agent.claude": "ready", "host": "h"})
    assert not demands_any_label(labels, {"agent.claude": "ready"})
    assert not demands_any_label(labels, {"version": "1"})
    assert not demands_any_label(labels, {})


def why(world: World, run: str) -> list[str]:
    return RunExplanation(world.store, world.settings).of(run)[1]


def test_why_says_which_demand_nobody_meets_and_how_to_start_who_does(world: World) -> None:
    world.worker("w1", labels={"zone": "c", "memory": "8", "version": "0.1", "host": "here"})
    run = world.submit(demands={"zone": "a|b", "memory": ">=64", "version": ">=0.2", "host": "there"})

    assert why(world, run)[:2] == [
        "It demands host=there, memory>=64, version>=0.2, zone=a|b, and no worker registered for its queue, default, "
        "offers that.",
        "Start one with `agentq worker --queue default --label memory=64 --label zone=a` on there, of agentq 0.2 or "
        "later.",
    ]


def test_why_says_that_those_who_could_take_only_what_asks_for_them(world: World) -> None:
    world.worker("w1", labels={"gpu": "a100"}, only_matching=True)

    assert why(world, world.submit())[:2] == [
        "Every worker of its queue, default, that meets its demands takes only runs that ask for its labels.",
        "Start one without --only-matching: `agentq worker --queue default`.",
    ]


def test_a_run_for_a_worker_that_is_gone_says_so_and_ends_with_its_patience(world: World) -> None:
    world.worker("w1", labels={"worker": "w1"}).deregister()
    run = world.submit(demands={"worker": "w1"}, expires_ms=1000)
    world.worker("w2", labels={"worker": "w2"})

    assert why(world, run)[:2] == [
        "It demands worker=w1, and no worker registered for its queue, default, offers that.",
        "That worker is gone or of other queues, and no other ever gets its id: cancel the run, or let it expire.",
    ]
    world.pass_ms(1000)
    world.tick()
    assert world.state(run) == "failed"


def test_a_rolling_upgrade_leaves_new_runs_to_new_workers(world: World) -> None:
    old, new = (world.worker(name, labels={"version": version}) for name, version in (("old", "0.9"), ("new", "0.10")))
    run = world.submit(demands={"version": ">=0.10"})

    assert taken(old, run) == []
    assert taken(new, run) == [run]


@pytest.mark.parametrize(
    ("demands", "said"),
    [
        ({}, "Start one with `agentq worker --queue q`."),
        ({"gpu": "!=t4"}, "Start one with `agentq worker --queue q`."),
        ({"host": "!=a"}, "Start one with `agentq worker --queue q` on another host than a."),
        ({"host": "a|b", "x": "1"}, "Start one with `agentq worker --queue q --label x=1` on a or b."),
        ({"version": "0.3"}, "Start one with `agentq worker --queue q`, of agentq 0.3."),
    ],
)
def test_how_to_start_a_worker_that_fits(demands: dict[str, str], said: str) -> None:
    assert suggest_worker("q", demands) == said


def test_demands_are_written_as_they_are_typed() -> None:
    demands = {"a": "1", "b": "!=2|3", "c": ">=4"}

    assert format_demands(demands) == ["a=1", "b!=2|3", "c>=4"]
    assert unmet_demands([{"a": "1", "b": "2"}, {"c": "5"}], demands) == {}
    assert unmet_demands([], demands) == demands
