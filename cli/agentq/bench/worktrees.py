"""What a task costs that works in a worktree and is merged, beside shell scripts that do the same, for `agentq bench`.

Both scripts do the work of as many tasks at a time as the worker has slots, each merge alone. One takes a worktree for
each task from the usual git commands, and throws it away; the other reuses worktrees, as agentq
does. The task itself only writes one file.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from statistics import median

from agentq.bench.throughput import BenchFigure, median_ratio, time_call
from agentq.bench.worker_throughput import WorkerBench
from agentq.coordinator.errors import AgentqError
from agentq.coordinator.model.lifecycle import State
from agentq.coordinator.model.spec import RunSpec
from agentq.coordinator.model.workspace import WorkspaceSpec
from agentq.coordinator.runs.end_waiter import RunEndWaiter

SLOTS = 4
WAIT_MS = 300_000
TASK_MS_MAX = 150
RATIO_MAX = 1.3
FOLDER_FILES = 50
GIT_IDENTITY = {
    f"GIT_{role}_{what}": value
    for role in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "bench"), ("EMAIL", "bench@localhost"))
}
TASK_SCRIPT = "echo x > file-$1"

MERGE_SCRIPT = """
tip=$(git rev-parse work)
new=$(git rev-parse agentq/$1)
if [ "$(git rev-parse $new~1)" != "$tip" ]; then
  tree=$(git merge-tree --write-tree $tip $new)
  new=$(git commit-tree -p $tip -m "task $1" $tree)
fi
git update-ref refs/heads/work $new $tip
"""
"""In the repository, of the task whose number is the first argument."""
COMMIT_SCRIPT = f"""
{TASK_SCRIPT}
git add -A
git commit -q -m "task $1"
"""
PLAIN_SCRIPT = f"""
often() {{ for _ in 1 2 3 4 5; do "$@" 2>/dev/null && return; done; "$@"; }}
often git worktree add -q --no-track -B agentq/$1 ../plain-$1 work
cd ../plain-$1
{COMMIT_SCRIPT}
flock ../merging sh -ec '{MERGE_SCRIPT}' - $1
cd ../repository
often git worktree remove --force ../plain-$1
often git branch -q -D agentq/$1
"""
"""Git fails where it meets a worktree that comes or goes that moment."""
REUSE_SCRIPT = f"""
n=1
while ! mkdir ../taken-$n 2>/dev/null; do n=$(($n % {SLOTS} + 1)); done
base=$(git rev-parse work)
cd ../again-$n
git checkout -q -f --no-track -B agentq/$1 $base
git clean -q -ffdx
{COMMIT_SCRIPT}
flock ../merging sh -ec '{MERGE_SCRIPT}' - $1
git checkout -q --detach
git branch -q -D agentq/$1
rmdir ../taken-$n
"""


@dataclass(frozen=True, slots=True)
class WorktreeScale:
    """How much of everything."""

    files: int = 10_000
    tasks: int = 24
    rounds: int = 5
    plain_tasks: int = 8
    """Each writes all the files."""
    plain_rounds: int = 2


WORKTREES_QUICK = WorktreeScale(files=100, tasks=4, rounds=1, plain_tasks=4, plain_rounds=1)


class WorktreeBench:
    """One repository, and one worker process."""

    def __init__(self, scale: WorktreeScale, workers: WorkerBench) -> None:
        self.scale = scale
        self.workers = workers
        self.queue = workers.queue
        self.folder = workers.folder / "worktrees-bench"
        self.repository = self.folder / "repository"
        self._number = 0

    def figures(self) -> Iterator[BenchFigure]:
        """Every figure, one after the other."""
        self._make()
        ours, again = list[float](), list[float]()
        with self.workers.worker(SLOTS), closing(RunEndWaiter(self.queue.store)) as outcomes:
            self._delivered(outcomes, 4 * SLOTS)  # the first worktrees are made, and their files written
            for number in range(SLOTS):
                self._git("worktree", "add", "-q", "--detach", f"../again-{number + 1}", "work")
            for _ in range(self.scale.rounds):
                ours.append(self._delivered(outcomes, self.scale.tasks))
                again.append(self._scripted(REUSE_SCRIPT, self.scale.tasks))
            # Last, as the disk is busy with so many files for a while.
            plain = [self._scripted(PLAIN_SCRIPT, self.scale.plain_tasks) for _ in range(self.scale.plain_rounds)]
        mine, bare, simple = (1e3 * median(each) for each in (ours, again, plain))
        of = f"{self.scale.files:,} files, {SLOTS} at a time"
        found = f"{mine:,.0f} ms a task, the script {bare:,.0f} ms"
        yield BenchFigure(f"a task in a worktree, of {of}", found, mine, "ms", most=TASK_MS_MAX)
        yield BenchFigure("beside a script that uses worktrees again", found, median_ratio(ours, again), most=RATIO_MAX)
        found = f"{mine:,.0f} ms a task, the script {simple:,.0f} ms"
        yield BenchFigure(
            "beside a script with worktree add and remove", found, median(ours) / median(plain), most=RATIO_MAX
        )

    def _make(self) -> None:
        """A repository with so many files, nothing of whose branches is checked out."""
        for number in range(self.scale.files):
            file = self.repository / f"folder-{number // FOLDER_FILES}" / f"file-{number}.py"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"# file {number}\n" * 40)
        self._git("init", "-q", "-b", "main")
        for key, value in (("name", "bench"), ("email", "bench@localhost")):
            self._git("config", f"user.{key}", value)
        self._git("add", "-A")
        self._git("commit", "-q", "-m", "begin")
        self._git("branch", "work")

    def _delivered(self, outcomes: RunEndWaiter, tasks: int) -> float:
        """Seconds for a task, of many that a worker does."""
        before = self._commits()
        workspace = WorkspaceSpec(repository=str(self.repository), base="work", target="work")
        argv = ("sh", "-c", TASK_SCRIPT, "-")
        runs: list[str] = []

        def deliver() -> None:
            runs.extend(
                self.queue.submit(RunSpec(kind="command", argv=(*argv, number), workspace=workspace)).id
                for number in self._numbers(tasks)
            )
            outcomes.wait_all(runs, WAIT_MS)

        took = time_call(deliver)
        for run in map(self.workers.records.get, runs):
            if run.state is not State.COMPLETED:
                raise AgentqError(f"A run of the bench ended as {run.state}: {run.outcome and run.outcome.error}")
        self._check(before + tasks)
        return took / tasks

    def _scripted(self, script: str, tasks: int) -> float:
        """The same for a script."""
        before = self._commits()
        words = ["xargs", "-P", str(SLOTS), "-I", "{}", "sh", "-ec", script, "-", "{}"]
        numbers = "\n".join(self._numbers(tasks))
        variables = {**os.environ, **GIT_IDENTITY}
        done = list[subprocess.CompletedProcess[str]]()
        took = time_call(
            lambda: done.append(
                subprocess.run(words, input=numbers, cwd=self.repository, env=variables, capture_output=True, text=True)
            )
        )
        if done[0].returncode:
            raise AgentqError(f"The script of the bench failed: {done[0].stderr.strip()[-400:]}")
        self._check(before + tasks)
        return took / tasks

    def _numbers(self, tasks: int) -> list[str]:
        """Numbers of new tasks, unused so far."""
        self._number += tasks
        return [str(number) for number in range(self._number - tasks, self._number)]

    def _commits(self) -> int:
        return int(self._git("rev-list", "--count", "work"))

    def _check(self, commits: int) -> None:
        if self._commits() != commits:
            raise AgentqError(f"The bench found {self._commits()} commits where {commits} should be.")

    def _git(self, *words: str) -> str:
        done = subprocess.run(["git", *words], cwd=self.repository, capture_output=True, text=True)
        if done.returncode:
            raise AgentqError(f"`git {shlex.join(words)}` failed: {done.stderr.strip()[-400:]}")
        return done.stdout
