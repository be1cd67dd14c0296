"""A run calls tasks and what the operator of its worker has named; code that it brings learns nothing of the worker."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from support.function_workers import Callers

from agentq.coordinator.config.settings import WorkerSettings, load_settings
from agentq.coordinator.errors import AgentqError, Invalid, NotAllowed
from agentq.coordinator.model.spec import RunSpec
from agentq.worker.functions.allowed_functions import AllowedFunctions
from agentq.worker.rq.queue_names import to_queue_name, to_upkeep_name

SHOP = """
import os
import subprocess
from os import getenv
from agentq import sdk

@sdk.task
def send(name: str) -> str:
    return f"hello {name}"

def price(what: str) -> int:
    return len(what)

class Order:
    @classmethod
    def open(cls, what: str) -> str:
        return what
"""
SPY = """
import os
from agentq import sdk
from agentq.coordinator.errors import NotAllowed

@sdk.task
def look() -> dict[str, str]:
    found = dict(os.environ)
    with open("/proc/self/environ") as file:
        found["proc"] = file.read()
    try:
        list(sdk.connect().records.all())
        found["reached"] = "yes"
    except NotAllowed as error:
        found["reached"] = str(error)
    return found
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "corner_shop.py").write_text(SHOP)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "corner_shop"


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("os:getenv", "Python's own"),
        ("subprocess:getoutput", "Python's own"),
        ("builtins:eval", "Python's own"),
        ("importlib.util:find_spec", "Python's own"),
        ("corner_shop:getenv", "no function of the modules of yours"),
        ("corner_shop:os.getenv", "leads into the module os"),
        ("corner_shop:subprocess", "leads into the module subprocess"),
        ("corner_shop:price.__globals__.get", "internal"),
        ("corner_shop:Order.mro", "no function of the modules of yours|is not a task"),
        ("support.functions:added", "is not a task"),
        ("agentq.worker.rq.job:perform", "is not a task"),
        ("agentq.sdk.functions.codec:load_function", "or of agentq"),
    ],
)
def test_what_is_no_task_and_not_named_is_not_called(shop: str, path: str, why: str) -> None:
    lane = RunSpec(kind="function", function=path).lane

    with pytest.raises(AgentqError, match=why):
        AllowedFunctions([shop]).load(path, lane)


def test_tasks_are_called_and_other_functions_of_modules_that_are_named(shop: str) -> None:
    lane = RunSpec(kind="function", function="a:b").lane
    nothing, named = AllowedFunctions([]), AllowedFunctions([shop])

    assert nothing.load("corner_shop:send", lane).run("ann") == "hello ann"
    with pytest.raises(NotAllowed, match="AGENTQ_WORKER_FUNCTIONS=corner_shop"):
        nothing.load("corner_shop:price", lane)
    assert named.load("corner_shop:price", lane).run("tea") == 3
    assert named.load("corner_shop:Order.open", lane).run("tea") == "tea"


def test_what_executes_jobs_of_rq_is_called_for_queues_of_rq_alone() -> None:
    for name, queue in (
        ("perform", to_queue_name("high")),
        ("settle", to_upkeep_name("high")),
        ("tidy", to_upkeep_name("high")),
    ):
        path = f"agentq.worker.rq.job:{name}"
        of_rq = RunSpec(kind="function", function=path, queue=queue).lane

        assert AllowedFunctions([]).load(path, of_rq).path == path


def test_a_module_is_not_imported_where_it_is_of_the_standard_library() -> None:
    assert "antigravity" not in sys.modules

    with pytest.raises(AgentqError):
        AllowedFunctions([]).load("antigravity:fly", RunSpec(kind="function", function="a:b").lane)
    assert "antigravity" not in sys.modules


@pytest.mark.parametrize("modules", ["os", "shop,subprocess", "shop:send", "shop..jobs"])
def test_what_cannot_be_named_is_refused(modules: str) -> None:
    with pytest.raises(Invalid, match=r"standard library|not the name of a module"):
        load_settings({}, {"AGENTQ_WORKER_FUNCTIONS": modules})
    assert load_settings({}, {"AGENTQ_WORKER_FUNCTIONS": "shop,b.jobs"}).worker.functions == ("shop", "b.jobs")
    assert WorkerSettings().functions == ()


def looked(callers: Callers, run: str) -> dict[str, str]:
    ended = callers.ended(run)
    assert ended.outcome.class_ == "ok", ended.outcome
    found: dict[str, str] = (
        json.loads(ended.outcome.result) if isinstance(ended.outcome.result, str) else ended.outcome.result
    )
    return found


def test_runs_do_not_get_at_the_address_of_the_server(callers: Callers, tmp_path: Path) -> None:
    """The SDK has it in a task of the worker's; in code that the run has brought, not even that."""
    for place in ("ours", "theirs"):
        (tmp_path / place).mkdir()
        (tmp_path / place / f"{place}_spy.py").write_text(SPY)
    secrets = {"AGENTQ_TOKEN": "tok-hunter2", "SHOP_API_KEY": "key-hunter2", "PYTHONPATH": f"tests:{tmp_path / 'ours'}"}
    callers.worker(environment=secrets)
    url, path = callers.server.url, str(tmp_path / "theirs")
    paths = ("os:getenv", "ours_spy:look", "theirs_spy:look", "theirs_spy:look")
    more: tuple[dict[str, object], ...] = ({"args": ["AGENTQ_URL"]}, {}, {"env": {"PYTHONPATH": path}}, {"cwd": path})

    env, ours, *theirs = (
        callers.queue.submit(RunSpec.checked(kind="function", function=function, **fields)).id
        for function, fields in zip(paths, more, strict=True)
    )

    refused = callers.ended(env)
    assert (refused.state, refused.outcome.class_) == ("failed", "rejected")
    own = looked(callers, ours)
    assert own["reached"] == "yes"
    assert own["SHOP_API_KEY"] == "key-hunter2", "which tasks of the worker's work with"
    assert url not in str(own)
    assert "tok-hunter2" not in str(own)
    for run in theirs:
        brought = looked(callers, run)
        assert "server_queues" in brought["reached"]
        assert url not in str(brought)
        assert "hunter2" not in str(brought)


@pytest.mark.full("takes 3 s")
def test_only_functions_of_queues_that_are_named_know_the_server(callers: Callers, tmp_path: Path) -> None:
    (tmp_path / "ours_spy.py").write_text(SPY)
    environment = {"AGENTQ_WORKER_SERVER_QUEUES": "close", "PYTHONPATH": f"tests:{tmp_path}"}
    callers.worker(environment=environment, queue=["close", "far"], slots=2)
    at = str(tmp_path)

    def reached(**fields: object) -> bool:
        spec = RunSpec.checked(kind="function", function="ours_spy:look", **fields)
        return looked(callers, callers.queue.submit(spec).id)["reached"] == "yes"

    assert reached(queue="close")
    assert reached(queue="close", cwd=at)
    assert not reached(queue="far")
    assert not reached(queue="far", cwd=at)
