"""kill -9 of a worker at every step of a run's way, and then another worker goes on.

Each run has a repository, a queue and a worker of its own, whose git, or whose command, stops at one step; there the
worker is killed.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.crew import Crew
from support.repositories import ALONE, Depot
from support.servers import Server, until
from support.worktree_runs import Yard, begin

from agentq.coordinator.runs.run_record import RunRecord
from agentq.worker.workspace.worktree.retention import RetentionPolicy, apply_retention


@dataclass(frozen=True)
class Stop:
    """Where a run stops: before or after the first git whose words begin so; or in a command, where there are none."""

    name: str
    words: str = ""
    after: bool = False
    times: int = 1
    """How often its process has run in the end."""


STOPS = (
    Stop("prepare-before", "worktree add"),
    Stop("prepare-after", "worktree add", after=True),
    Stop("execute", times=2),
    Stop("commit-before", "commit-tree"),
    Stop("commit-after", "update-ref -m agentq: committed refs/heads/agentq/", after=True),
    Stop("merge-before", "merge-tree"),
    Stop("merge-after", "merge-tree", after=True),
    Stop("check"),
    Stop("move-before", "update-ref -m agentq: merged"),
    Stop("move-after", "update-ref -m agentq: merged", after=True),
    Stop("unblock"),
    Stop("cleanup-before", "update-ref -d refs/heads/agentq/"),
    Stop("cleanup-after", "update-ref -d refs/heads/agentq/", after=True),
)
GIT = """#!/bin/sh
words=$(
    for word; do
        case $word in
            -c) skip=1;;
            --git-dir=*|--work-tree=*) ;;
            *) [ -n "$skip" ] || printf '%s ' "$word"; skip=;;
        esac
    done
)
stop() {{ mkdir {mark} 2>/dev/null && echo $$ > {mark}/pid && kill -STOP $$; }}
case $words in {words}*) {before}{real} "$@"; code=$?; {after}exit $code;; esac
exec {real} "$@"
"""


def stopping_git(folder: Path, stop: Stop) -> Path:
    """A folder with a git in it that stops there, once."""
    place = folder / stop.name
    place.mkdir()
    words = (stop.words or "none").replace(" ", "\\ ")
    before, after = ("", "stop; ") if stop.after else ("stop; ", "")
    text = GIT.format(mark=place / "stopped", words=words, before=before, after=after, real=shutil.which("git"))
    (place / "git").write_text(text)
    (place / "git").chmod(0o755)
    return place


@dataclass(frozen=True)
class Scene:
    """One of the stops."""

    stop: Stop
    yard: Yard
    tools: Path

    @property
    def mark(self) -> Path:
        """Is there once a command stands."""
        return self.tools / "standing"

    def stands(self) -> bool:
        return self.mark.exists() or (self.tools / "stopped").exists()

    def begin(self) -> subprocess.Popen[bytes]:
        path = f"{self.tools}:{os.environ['PATH']}"
        return self.yard.crew.begin(environment={**ALONE, "PATH": path}, queue=self.stop.name)

    def submit(self) -> str:
        depot, name = self.yard.depot, self.stop.name
        depot.git("branch", "work")
        waits = f"if mkdir {self.mark} 2>/dev/null; then sleep 1000; fi"
        lines = [f"echo executed >> {self.yard.told}"]
        if name == "execute":
            lines.append(waits)
        if name.startswith("merge"):
            # Somebody moves the target meanwhile, so that there is something to merge.
            theirs = depot.commit_on("main", "theirs", theirs__txt="theirs\n")
            lines.append(f"git -C {depot.path} update-ref refs/heads/work {theirs}")
        command = {"check": "check", "unblock": "after_merge"}.get(name)
        more = {} if command is None else {command: ["sh", "-c", waits]}
        return self.yard.submit("; ".join([*lines, "echo mine > mine.txt"]), name=name, queue=name, **more)

    def check(self, run: RunRecord) -> None:
        """All is as if nobody had been killed."""
        yard = self.yard
        assert run.state == "completed", (self.stop, run.outcome)
        assert yard.delivered() == [run.id], self.stop
        assert yard.depot.read("work", "mine.txt") == "mine"
        assert yard.told.read_text().split() == ["executed"] * self.stop.times, self.stop
        assert yard.depot.status() == ""
        assert [path for path in (yard.depot.path / ".git").rglob("*.lock") if path.read_bytes()] == [], self.stop


@pytest.mark.full("takes 7 s")
def test_a_worker_killed_at_any_step_leaves_one_commit_for_each_run_and_nothing_stuck(
    make_crew: Callable[..., Crew], valkey: Server, folder: Path, depot: Depot, tmp_path: Path
) -> None:
    crew = make_crew(valkey, namespace=folder.name)
    scenes = []
    for stop in STOPS:
        own = depot.copy(tmp_path / stop.name)
        scenes.append(Scene(stop, Yard(crew, own), stopping_git(folder, stop)))
    workers = [scene.begin() for scene in scenes]
    runs = [scene.submit() for scene in scenes]
    for scene in scenes:
        until(scene.stands, f"{scene.stop.name} to stand", 60)
    for worker in workers:
        worker.kill()
        worker.wait()
    crew.worker(environment=ALONE, slots=4, queue=[stop.name for stop in STOPS])
    crew.lose(*workers)

    for scene, run in zip(scenes, scenes[0].yard.done(*runs), strict=True):
        scene.check(run)

    assert scenes[0].yard.lines() == []
    apply_retention(scenes[0].yard.home, RetentionPolicy(7 * 86_400_000, 1 << 40))
    left = {
        scene.stop.name: scene.yard.depot.git("for-each-ref", f"refs/heads/agentq/{runs[at]}")
        for at, scene in enumerate(scenes)
    }
    assert [left[name] for name in ("cleanup-before", "cleanup-after")] == ["", ""], "housekeeping ends what was begun"
    more = [scene.yard.submit("echo more > more.txt", queue=scene.stop.name) for scene in scenes]
    assert {run.state.value for run in scenes[0].yard.done(*more)} == {"completed"}, (
        "and all can be worked in as before"
    )


@pytest.mark.full("takes 3 s")
def test_a_server_that_is_killed_while_work_is_merged_loses_nothing(
    make_crew: Callable[..., Crew], durable: Server, folder: Path, depot: Depot
) -> None:
    """What is to be said to it waits until it is back; the target moves once."""
    yard = Yard(make_crew(durable, namespace=folder.name), depot)
    gate = folder / "gate"
    yard.worker(slots=2)
    check = ["sh", "-c", f"echo checks >> {yard.told}; while [ ! -e {gate} ]; do sleep 0.02; done"]
    runs = [yard.submit(f"echo {each} > f{each}.txt; echo did >> {yard.told}", check=check) for each in range(2)]
    until(
        lambda: sorted(yard.told.read_text().split()) == ["checks", "did", "did"], "both to be done, one in its check"
    )

    durable.signal(signal.SIGKILL)
    gate.touch()
    durable.start()

    ended = yard.done(*runs)
    assert [run.state for run in ended] == ["completed"] * 2, [run.outcome for run in ended]
    assert sorted(yard.delivered()) == sorted(runs)
    assert yard.told.read_text().split().count("did") == 2


@pytest.mark.full("takes 1 s")
def test_a_worker_that_is_told_to_leave_while_git_merges_hands_back_at_no_cost(
    make_crew: Callable[..., Crew], valkey: Server, folder: Path, depot: Depot
) -> None:
    scene = Scene(Stop("merge", "merge-tree"), Yard(make_crew(valkey, namespace=folder.name), depot), folder / "merge")
    stopping_git(folder, scene.stop)
    tool = scene.tools / "git"
    # It goes on when it is told to, and does not stand for ever.
    tool.write_text(tool.read_text().replace("kill -STOP $$", f"while [ ! -e {folder}/go ]; do sleep 0.02; done"))
    leaving = scene.yard.crew.worker(
        environment={**ALONE, "PATH": f"{scene.tools}:{os.environ['PATH']}"}, queue="merge", drain_grace="50ms"
    )
    run = scene.submit()
    until(scene.stands, "git to merge", 60)

    leaving.terminate()
    until(lambda: scene.yard.crew.records.workers()[0].state == "draining", "it to drain")
    until(lambda: scene.yard.crew.records.get(run).state in ("claimed", "running"), "it to be held still")
    (folder / "go").touch()
    assert leaving.wait(30) == 0
    handed_back = scene.yard.crew.records.get(run)
    begin(scene.yard.crew, queue="merge")
    (ended,) = scene.yard.done(run)

    assert handed_back.state in ("pending", "completed")
    assert (ended.state, ended.failures, ended.crashes) == ("completed", 0, 0), ended.outcome
    assert scene.yard.delivered() == [run]
    assert scene.yard.told.read_text().split() == ["executed"]


@pytest.mark.full("takes 3 s")
def test_a_frozen_worker_that_wakes_when_another_has_merged_adds_nothing(
    make_crew: Callable[..., Crew], valkey: Server, folder: Path, depot: Depot
) -> None:
    """It stands between its look at the target and the moment in which it would move it."""
    yard = Yard(make_crew(valkey, namespace=folder.name), depot)
    scene = Scene(
        Stop("move", "update-ref -m agentq: merged"),
        yard,
        stopping_git(folder, Stop("move", "update-ref -m agentq: merged")),
    )
    frozen = scene.begin()
    run = scene.submit()
    until(scene.stands, "it to be about to move the target", 60)
    frozen.send_signal(signal.SIGSTOP)
    begin(yard.crew, queue="move")
    yard.crew.lose(frozen)
    (ended,) = yard.done(run)

    os.kill(int((scene.tools / "stopped" / "pid").read_text()), signal.SIGCONT)
    frozen.send_signal(signal.SIGCONT)
    until(lambda: len(yard.crew.records.workers()) == 2, "it to be back", 40)
    after = yard.done(yard.submit("echo more > more.txt", queue="move"))[0]

    assert (ended.state, after.state) == ("completed", "completed")
    assert yard.delivered() == [run, after.id]
    assert yard.told.read_text().split() == ["executed"]
