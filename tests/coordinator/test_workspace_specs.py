"""What may be said of a run's workspace, and how it and the delivered work come back from the wire."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.world import World

from agentq.coordinator.errors import Invalid
from agentq.coordinator.model.ids import new_run_id
from agentq.coordinator.model.lifecycle import OutcomeClass, State
from agentq.coordinator.model.retry_policy import OutcomeClassPolicy, RetryPolicy
from agentq.coordinator.model.spec import Outcome, RunSpec, parse_spec
from agentq.coordinator.model.workspace import DeliveredWork, WorkspaceSpec

HOME: dict[str, Any] = {"repository": "/srv/shop", "base": "main"}
COMMAND: dict[str, Any] = {"kind": "command", "argv": ["make"], "workspace": HOME}


def refusal(**fields: Any) -> str:
    with pytest.raises(Invalid) as refused:
        RunSpec.checked(**fields)
    return str(refused.value)


RUN = "run_" + "0" * 23
REFUSED = [
    ({"kind": "function", "function": "a:b"},
     "a run of kind 'function' has no workspace; one of kind 'command' or 'agent' can have."),
    ({"cwd": "/tmp"}, "with a workspace, cwd is a folder within it, such as 'web'."),
    ({"cwd": "web/../.."}, "with a workspace, cwd is a folder within it, such as 'web'."),
    ({"task": "build"}, "'task' means nothing without plan."),
    ({"kind": "agent", "agent": "claude", "prompt": "go", "argv": [], "context": "plan"},
     "'context' means nothing without plan."),
    ({"context": "plan", "plan": "p"}, "context is for the prompt of an agent."),
    ({"inputs": {f"t{number}": RUN for number in range(101)}},
     "inputs: 100 entries are the most."),
]  # fmt: skip
UNFIT = [
    ({"repository": "shop"},
     "workspace.repository: give the absolute path of a repository, or an address that git can fetch from."),
    ({"repository": "--upload-pack=x"}, "workspace.repository: it should be one line of text, and not begin with -."),
    ({"base": "--all"}, "workspace.base: it should be one line of text, and not begin with -."),
    ({"target": "a..b"}, "workspace.target: 'a..b' is not the name of a branch."),
    ({"target": "HEAD"}, "workspace.target: 'HEAD' is not the name of a branch."),
    ({"copy_files": ["../secret"]}, "workspace.copy_files: '../secret' is not a path within the repository."),
    ({"ports": ["AGENTQ_URL"]}, "workspace.ports: 'AGENTQ_URL' cannot be the name of a variable of the run's."),
    ({"rounds": 21}, "workspace.rounds: it should be less than or equal to 20."),
    ({"on_conflict": "resolver"},
     "workspace: on_conflict 'resolver' needs 'resolver', the agent that is to resolve conflicts."),
    ({"resolver": "claude"}, "workspace: resolver means nothing without on_conflict 'resolver'."),
    ({"check_timeout_ms": 1}, "workspace: check_timeout_ms means nothing without check."),
    ({"colour": "red"}, "workspace.colour: there is no such field."),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "sentence"), REFUSED, ids=lambda each: str(each)[:30])
def test_what_does_not_go_with_a_workspace_is_refused_with_one_sentence(fields: dict[str, Any], sentence: str) -> None:
    assert refusal(**COMMAND | fields) == sentence


@pytest.mark.parametrize(("fields", "sentence"), UNFIT, ids=lambda each: str(each)[:30])
def test_a_workspace_that_makes_no_sense_is_refused_with_one_sentence(fields: dict[str, Any], sentence: str) -> None:
    assert refusal(**COMMAND | {"workspace": HOME | fields}) == sentence


@pytest.mark.parametrize("address", ["/srv/shop", "https://host/shop.git", "git@host:team/shop.git", "file:///srv/x"])
def test_a_repository_is_a_path_or_an_address(address: str) -> None:
    assert WorkspaceSpec(repository=address, base="HEAD~1").repository == address


def test_a_workspace_comes_back_from_the_wire_without_what_this_version_does_not_know() -> None:
    spec = RunSpec.checked(
        **COMMAND
        | {"workspace": HOME | {"target": "main", "check": ["make", "test"], "ports": ["PORT"], "rounds": 1}}
        | {"plan": "shop-1", "task": "build", "inputs": {"first": new_run_id()}}
    )
    wire = json.loads(spec.to_wire())

    assert parse_spec(json.dumps(wire), spec.lane) == spec
    assert wire["workspace"].keys() == {"repository", "base", "target", "check", "ports", "rounds"}
    assert parse_spec(json.dumps(wire | {"workspace": wire["workspace"] | {"colour": "red"}}), spec.lane) == spec


def test_what_was_delivered_is_told_with_the_outcome(world: World) -> None:
    run, work = (
        world.submit(workspace=HOME),
        DeliveredWork(commit="c0ffee", base="ba5e", target="main", merged=True, files=3),
    )
    world.queue.finish([(world.worker("w1").claim(1)[0], Outcome(work=work))])

    told = world.get(run)

    assert told.outcome is not None
    assert told.outcome.work == work


@pytest.mark.parametrize("class_", [OutcomeClass.CONFLICT, OutcomeClass.CHECK])
def test_a_conflict_or_a_failed_check_goes_back_as_often_as_the_workspace_says(
    world: World, class_: OutcomeClass
) -> None:
    run = world.submit(workspace=HOME | {"rounds": 1}, retry=RetryPolicy(failures=5))
    worker = world.worker("w1")
    for expected in (State.SCHEDULED, State.FAILED):
        (claim,) = worker.claim(1)
        assert world.queue.fail(claim, Outcome(class_=class_)) is expected
        world.pass_ms(1)
        world.tick()

    assert (world.get(run).failures, world.get(run).spent) == (0, {class_: 1})


def test_what_the_policy_itself_says_of_a_class_goes_before_the_rounds() -> None:
    workspace = WorkspaceSpec(**HOME, on_check="fail", rounds=4)
    own = RetryPolicy(classes={OutcomeClass.CHECK: OutcomeClassPolicy(retries=9)}, final=(OutcomeClass.CONFLICT,))

    assert workspace.tries(own).classes == {OutcomeClass.CHECK: OutcomeClassPolicy(retries=9)}
    assert workspace.tries(RetryPolicy()).classes[OutcomeClass.CHECK].retries == 0
