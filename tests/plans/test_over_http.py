"""`agentq run` for whoever reaches nothing but a coordinator: a plan from its file to its merged commits over HTTP."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator

import pytest
from plans.conftest import Desk
from support.http_servers import Serving
from support.servers import Server, until

TASKS = """
name: far
repository: .
max_parallel: 2
tasks:
- {{id: one, command: "echo one >> {log}; env > one.env; {pause} echo one > one.txt", shell: true}}
- {{id: two, needs: one, command: "echo two >> {log}; test -f one.txt && echo two > two.txt", shell: true}}
"""


@pytest.fixture
def far(make_desk: Callable[..., Desk], valkey: Server) -> Iterator[tuple[Desk, Serving]]:
    """A desk that reaches a coordinator, with a token, and nothing else."""
    desk = make_desk(valkey)
    serving = Serving(valkey, desk.folder, "--require-tokens", namespace=desk.namespace).start()
    desk.use_coordinator(serving.url, serving.token("admin"), serving.queue)
    yield desk, serving
    desk.close()
    serving.stop()


def plan(desk: Desk, pause: str = "") -> None:
    desk.plan(TASKS.format(log=desk.folder / "log", pause=pause))


def token_of(desk: Desk) -> str:
    return desk.variables["AGENTQ_TOKEN"]


@pytest.mark.full("takes 8 s")
def test_a_plan_is_carried_out_through_a_coordinator(far: tuple[Desk, Serving]) -> None:
    desk, serving = far
    plan(desk)

    said = desk.run()

    assert (said["state"], said["counts"], said["target"]) == ("completed", {"completed": 2}, "agentq/far")
    desk.check("one", "two", target="agentq/far")
    assert [desk.began(task) for task in ("one", "two")] == [1, 1]
    assert desk.workers() == []
    assert token_of(desk) not in desk.depot.read("agentq/far", "one.env"), "no run gets the token"
    shown = json.loads(desk.say("plan", "show", "--json"))
    assert (shown["made_by"], shown["repository"]) == (token_of(desk).split("_")[2], str(desk.depot.path))
    with serving.client(token_of(desk)) as client:
        assert client.get(f"/limits/plan:{shown['id']}").status_code == 404, "its limit went with it"
    serving.check()


@pytest.mark.full("takes 12 s")
def test_a_coordinator_that_is_killed_in_the_middle_loses_no_task_and_merges_none_twice(
    far: tuple[Desk, Serving],
) -> None:
    desk, serving = far
    plan(desk, f"until test -f {desk.folder / 'go'}; do sleep 0.1; done;")
    program = desk.begin("run", "plan.yaml", "--workers", "2", "--json")
    until(lambda: desk.began("one"), "the first task to begin", 60)
    serving.signal(signal.SIGKILL)
    (desk.folder / "go").touch()
    serving.start()
    out, err = program.communicate(timeout=90)

    assert program.returncode == 0, err
    assert json.loads(out)["counts"] == {"completed": 2}
    assert [desk.began(task) for task in ("one", "two")] == [1, 1]
    desk.check("one", "two", target="agentq/far")


@pytest.mark.full("takes 8 s")
def test_ctrl_c_lets_what_runs_finish_and_resume_goes_on_through_a_coordinator(far: tuple[Desk, Serving]) -> None:
    desk, _ = far
    plan(desk, f"until test -f {desk.folder / 'go'}; do sleep 0.1; done;")
    program = desk.begin("run", "plan.yaml", "--workers", "1")
    until(lambda: desk.began("one"), "the first task to begin", 60)
    program.send_signal(signal.SIGINT)
    said = program.stderr
    assert said is not None
    until(lambda: "nothing more begins" in said.readline(), "the signal to be heard", 60)
    (desk.folder / "go").touch()
    out, _ = program.communicate(timeout=60)

    assert program.returncode == 130, out
    assert {name: each.state.value for name, each in desk.tasks().items()} == {"one": "completed", "two": "pending"}
    desk.say("resume", "--workers", "2")
    desk.check("one", "two", target="agentq/far")
