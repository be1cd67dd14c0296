"""`agentq run`: a plan carried out, from a file to merged commits, whatever happens on the way."""

from __future__ import annotations

import os
import pty
import re
import signal
from collections.abc import Callable

import pytest
from plans.conftest import MORTAL, Desk
from support.processes import send
from support.servers import until

from agentq.coordinator.model.spec import RunSpec
from agentq.coordinator.plans.verbs import Plans, TaskSubmission
from agentq.coordinator.storage.embedded import EmbeddedServer


def task(name: str, *, seconds: float = 0, log: object, needs: str = "[]", more: str = "") -> str:
    """A task that notes that it has begun, takes its time, and writes a file."""
    does = f"echo {name} >> {log}; sleep {seconds}; echo {name} > {name}.txt"
    return f'- {{id: {name}, needs: {needs}, command: "{does}", shell: true{more}}}\n'


@pytest.mark.promise("P5")
@pytest.mark.slow("a plan from its file to its merged commits")
def test_a_plan_of_agents_and_commands_becomes_one_commit_for_each_task(make_desk: Callable[..., Desk]) -> None:
    """With no server, no settings and no account: it brings its own server, and its own workers, which end with it."""
    desk = make_desk()
    desk.plan(
        """
name: evening
check: test -f a.txt
defaults: {agent: standin}
tasks:
- {id: parser, prompt: "WRITE parser.txt {{ vars.what }}\\nANSWER {\\"said\\": 7}"}
- {id: docs, foreach: [one, "t w o"], command: [touch, "{{ item }}"]}
- id: review
  needs: [parser, docs]
  prompt: "RUN cat parser.txt > review.txt; echo {{ tasks.parser.commit }} >> review.txt"
- {id: look, needs: review, command: "test -f review.txt", workspace: {merge: none}}
vars: {what: mended}
"""
    )
    said = desk.run()

    assert said["counts"] == {"completed": 5}
    assert (said["state"], said["target"]) == ("completed", "agentq/evening")
    desk.check("parser", "docs-one", "docs-t-w-o", "review", target="agentq/evening")
    parser = next(each for each in desk.depot.log("agentq/evening", "%H %s") if each.endswith(" parser")).split()[0]
    assert desk.depot.read("agentq/evening", "review.txt") == f"mended\n{parser}"
    assert desk.workers() == []


@pytest.mark.full("takes 1 s")
def test_what_needs_a_task_that_failed_is_skipped_and_the_end_says_so(desk: Desk) -> None:
    desk.plan(
        """
tasks:
- {id: good, command: "touch good.txt"}
- {id: bad, command: "sh -c 'echo it broke >&2; exit 3'"}
- {id: late, needs: [good, bad], command: "touch late.txt"}
repository: .
"""
    )
    said = desk.say("run", "plan.yaml", "--workers", "2", code=1).splitlines()
    told = "\n".join(said)
    later = desk.say("plan", "show", said[0].split()[0])

    assert any(line.endswith(": 1 completed, 1 failed, 1 skipped.") for line in said)
    assert "late  needs bad (failed)" in told.replace("   ", " ").replace("  ", " ").replace(
        "late needs", "late  needs"
    )
    assert "exit: exited with code 3" in told
    assert all(line in later.splitlines() for line in said if line.startswith(("  failed", "  skipped")))
    assert "merge agentq/plan` brings it into the checkout." in told
    desk.check("good", target="agentq/plan")


@pytest.mark.full("takes 2 s")
def test_the_end_says_which_task_removed_the_work_of_another_and_which_agent_changed_nothing(desk: Desk) -> None:
    desk.plan(
        """
repository: .
defaults: {agent: standin}
tasks:
- {id: api, command: "touch api.txt own.txt"}
- {id: undo, needs: api, command: "rm api.txt"}
- {id: look, prompt: "SAY all is well"}
"""
    )
    said = desk.say("run", "plan.yaml", "--workers", "2")
    later = desk.say("plan", "show", said.split()[0])

    for told in (said, later):
        assert "undo removes what other tasks of the plan made: api.txt (api)" in told
        assert "changed nothing: look" in told


@pytest.mark.full("takes 2 s")
def test_a_plan_for_an_agent_that_is_not_here_is_refused_before_it_begins(desk: Desk) -> None:
    desk.plan("repository: none\ntasks:\n- {id: a, agent: aider, prompt: look}")

    program = desk.begin("run", "plan.yaml")
    _, said = program.communicate(timeout=90)

    assert (program.returncode, "for aider, and there is no such program here" in said) == (5, True), said
    assert desk.say("plan", "ls") == ""


def slow(desk: Desk) -> None:
    """Two tasks at the same time, and one after them."""
    log = desk.folder / "log"
    first, second = task("one", seconds=2, log=log), task("two", seconds=2, log=log)
    desk.plan(f"name: slow\nrepository: .\ntasks:\n{first}{second}{task('last', log=log, needs='[one, two]')}")


@pytest.mark.full("takes 7 s")
def test_ctrl_c_lets_what_runs_finish_and_resume_goes_on(desk: Desk) -> None:
    slow(desk)
    program = desk.begin("run", "plan.yaml", "--workers", "1")
    desk.waits_for("one", "running")
    program.send_signal(signal.SIGINT)
    _, err = program.communicate(timeout=60)

    assert program.returncode == 130
    assert "nothing more begins; what runs is finished. Ctrl-C once more stops it now." in err
    assert f"`agentq resume {desk.newest().id}` goes on with it" in err  # type: ignore[union-attr]
    assert {name: each.state.value for name, each in desk.tasks().items()} == {
        "one": "completed",
        "two": "pending",
        "last": "blocked",
    }
    assert desk.workers() == []
    assert "was made from this file, and has not ended" in desk_refusal(desk)
    desk.say("resume", "--workers", "2")
    assert [desk.began(name) for name in ("one", "two", "last")] == [1, 1, 1]
    desk.check("one", "two", "last", target="agentq/slow")


def desk_refusal(desk: Desk) -> str:
    """What `agentq run` says of a plan that has been interrupted."""
    program = desk.begin("run", "plan.yaml")
    _, err = program.communicate(timeout=60)
    assert program.returncode == 5
    return err


def test_resume_without_a_plan_names_the_others_that_have_not_ended(desk: Desk) -> None:
    plans = Plans(desk.queue)
    first, second = (
        plans.create(name, [TaskSubmission("a", RunSpec(kind="command", argv=["true"]))]) for name in ("one", "two")
    )
    program = desk.begin("resume", "--workers", "0")
    assert program.stderr is not None
    assert f"going on with {second}" in program.stderr.readline()
    plans.cancel(second)
    _, err = program.communicate(timeout=60)

    assert f"{first} has not ended either; `agentq resume {first}` goes on with it." in err


@pytest.mark.full("takes 1 s")
def test_a_second_ctrl_c_does_not_wait_and_loses_nothing(desk: Desk) -> None:
    log = desk.folder / "log"
    desk.plan(f"name: long\nrepository: .\ntasks:\n{task('one', seconds=30, log=log, more=', stop_grace: 500ms')}")
    program = desk.begin("run", "plan.yaml", "--workers", "1")
    until(lambda: desk.began("one"), "the task to begin", 60)
    program.send_signal(signal.SIGINT)
    said = program.stderr
    assert said is not None
    until(lambda: "nothing more begins" in said.readline(), "the first signal to be heard", 60)
    program.send_signal(signal.SIGINT)
    program.communicate(timeout=60)

    assert program.returncode == 130
    assert desk.tasks()["one"].state.value == "pending"
    assert desk.workers() == []


@pytest.mark.full("takes 7 s")
def test_when_the_command_is_killed_its_worker_finishes_what_it_has_and_ends(desk: Desk) -> None:
    slow(desk)
    program = desk.begin("run", "plan.yaml", "--workers", "1")
    until(lambda: desk.began("one"), "the first task to begin", 60)
    program.kill()
    program.communicate()
    until(lambda: not desk.workers(), "the worker to end", 60)

    assert {name: each.state.value for name, each in desk.tasks().items()}["one"] == "completed"
    desk.say("resume", "--workers", "2")
    assert [desk.began(name) for name in ("one", "two", "last")] == [1, 1, 1]
    desk.check("one", "two", "last", target="agentq/slow")


@pytest.mark.full("takes 8 s")
def test_after_a_power_cut_everything_goes_on_and_nothing_is_done_twice(make_desk: Callable[..., Desk]) -> None:
    """The command, its worker, what it runs and the server die at once, in the middle."""
    desk = make_desk()
    desk.times = MORTAL
    slow(desk)
    program = desk.begin("run", "plan.yaml", "--workers", "1")
    until(lambda: desk.home.joinpath("agentq/server").exists() and desk.began("two"), "the second task to begin", 60)
    server = EmbeddedServer(desk.home / "agentq" / "server").pid()
    assert server is not None
    send(signal.SIGKILL, (program.pid, *desk.workers(), server))
    program.communicate()

    desk.say("resume", "--workers", "2")

    assert [desk.began(name) for name in ("one", "last")] == [1, 1]
    desk.check("one", "two", "last", target="agentq/slow")


@pytest.mark.full("takes 6 s")
def test_a_worker_that_is_killed_is_replaced_and_its_task_begins_again(desk: Desk) -> None:
    desk.times = MORTAL
    slow(desk)
    program = desk.begin("run", "plan.yaml", "--workers", "2")
    until(lambda: desk.began("one") and desk.began("two"), "both tasks to begin", 60)
    (worker,) = desk.workers()
    os.kill(worker, signal.SIGKILL)
    out, err = program.communicate(timeout=90)

    assert program.returncode == 0, err
    assert "the worker here has died (killed by signal 9); its tasks go back into the queue." in out + err
    assert "completed after" in out
    desk.check("one", "two", "last", target="agentq/slow")
    assert desk.workers() == []


@pytest.mark.full("takes 4 s")
def test_a_task_that_is_added_while_the_plan_runs_works_like_the_others(desk: Desk) -> None:
    log, gate = desk.folder / "log", desk.folder / "go"
    waits = f'- {{id: two, command: "until test -f {gate}; do sleep 0.1; done; echo two > two.txt", shell: true}}\n'
    desk.plan(f"name: slow\nrepository: .\ntasks:\n{task('one', log=log)}{waits}")
    program = desk.begin("run", "plan.yaml", "--workers", "2")
    desk.waits_for("two", "running")
    plan = desk.newest()
    assert plan is not None
    desk.say("submit", "--plan", plan.id, "--task", "more", "--needs", "one", "--", "cp", "one.txt", "more.txt")
    gate.touch()
    program.communicate(timeout=90)

    assert program.returncode == 0
    desk.check("one", "two", "more", target="agentq/slow")


@pytest.mark.full("takes 1 s")
def test_workers_elsewhere_do_it_and_meet_at_the_remote(desk: Desk) -> None:
    """With `--workers 0` and an address for a repository: clones are made, work is pushed, nobody needs our folder."""
    remote = desk.folder / "remote.git"
    desk.depot.git("clone", "-q", "--bare", str(desk.depot.path), str(remote), cwd=desk.folder)
    desk.plan(
        f"""
name: far
repository: file://{remote}
workspace: {{push: true}}
tasks:
- {{id: one, command: "touch one.txt"}}
- {{id: two, needs: one, command: "cp one.txt two.txt"}}
"""
    )
    worker = desk.begin("worker", "--slots", "2")
    said = desk.say("run", "plan.yaml", "--workers", "0", "--json")
    worker.send_signal(signal.SIGTERM)

    assert '"state":"completed"' in said
    assert desk.depot.git("ls-tree", "--name-only", "agentq/far", cwd=remote).split() == ["a.txt", "one.txt", "two.txt"]


@pytest.mark.full("takes 2 s")
def test_a_plan_that_has_cost_what_it_may_begins_nothing_more(desk: Desk) -> None:
    desk.plan(
        """
repository: none
budget: 1.50
defaults: {agent: standin}
tasks:
- {id: one, prompt: "COST 1"}
- {id: two, needs: one, prompt: "COST 1\\nSLEEP 500ms"}
- {id: three, needs: two, command: "sleep 2"}
- {id: four, needs: three, prompt: "COST 1"}
"""
    )
    said = desk.run(code=1)

    assert said["state"] == "cancelled", [(task["id"], task["state"], task["because"]) for task in said["tasks"]]
    assert "it has cost $2.00, of $1.50 that it may cost" in said["stopped_why"]
    assert [task["state"] for task in said["tasks"]][:2] == ["completed", "completed"]
    assert said["tasks"][3]["state"] in ("cancelled", "skipped")


@pytest.mark.full("takes 4 s")
def test_a_terminal_gets_a_picture_of_what_runs_and_what_waits(desk: Desk) -> None:
    work = "for n in 1 2 3 4 5 6; do echo step $n; sleep 0.3; done"
    desk.plan(
        f"""
repository: none
max_parallel: 1
tasks:
- {{id: one, shell: true, priority: 9, command: "{work}"}}
- {{id: three, command: "true"}}
- {{id: two, needs: one, agent: standin, prompt: "SAY looking around\\nSLEEP 1s"}}
"""
    )
    leader, follower = pty.openpty()
    program = desk.begin("run", "plan.yaml", stdout=follower)
    os.close(follower)
    shown = "".join(iter(lambda: read_from(leader), ""))

    assert program.wait(timeout=60) == 0
    assert re.search(r"plan  ╌+  0/3  ·  1 running, 2 blocked  ·  [0-9.]+ s", shown)
    assert re.search(r"● one +[0-9.]+ m?s  step [1-6]", shown)
    assert "· two  needs one" in shown
    assert "· three  waits for one that runs to end" in shown
    assert "✓ one  completed, exit 0" in shown
    assert re.search(r"● two  standin +[0-9.]+ m?s  looking around", shown)
    assert '"type"' not in shown
    assert shown.rstrip().endswith(": 3 completed.")


def read_from(leader: int) -> str:
    try:
        return os.read(leader, 65536).decode(errors="replace")
    except OSError:
        return ""  # the last one on the other side has gone


@pytest.mark.full("takes 3 s")
def test_a_hint_reaches_the_next_attempt(desk: Desk) -> None:
    desk.plan('tasks:\n- {id: a, agent: standin, prompt: "AT 1 FAIL no idea\\nREPORT prompts"}\nrepository: .')
    desk.run(code=1)
    run = desk.tasks()["a"].run
    desk.say("hint", run, "Look in the docs.", "--retry")
    said = desk.say("resume", "--workers", "1")

    assert "Look in the docs." in desk.say("logs", run)
    assert "The work is on the branch" not in said  # nothing was changed


@pytest.mark.full("takes 4 s")
def test_an_edited_plan_that_failed_does_only_what_changed_when_it_is_run_again(desk: Desk) -> None:
    log = desk.folder / "log"
    text = (
        "name: evening\nrepository: .\ntasks:\n"
        + task("api", log=log)
        + task("docs", log=log)
        + f'- {{id: client, needs: api, command: "echo client >> {log}; exit 1", shell: true}}\n'
        + task("tests", log=log, needs="client")
    )
    desk.plan(text)
    assert desk.run(code=1)["counts"] == {"completed": 2, "failed": 1, "skipped": 1}

    desk.plan(text.replace("exit 1", "cat api.txt > client.txt"))
    said = desk.run()

    assert said["counts"] == {"completed": 2}
    assert [desk.began(each) for each in ("api", "docs", "client", "tests")] == [1, 1, 2, 1]
    assert desk.depot.read("agentq/evening", "client.txt") == "api"
    assert len(desk.depot.log("agentq/evening")) == 5, "the first commit, and one for each task"
