"""A worker that is killed while it makes a worktree leaves nothing that the next one stumbles over."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from support.repositories import Depot
from support.servers import until
from support.workspaces import Workshop

from agentq.worker.process.process_tree import end_dead_trees

MAKE = """
import os
import sys
from pathlib import Path
from agentq.worker.process.process_tree import COOKIE_VARIABLE, STARTER_VARIABLE, get_process_name
from support.workspaces import Workshop
shop = Workshop(Path(sys.argv[1]), marks={COOKIE_VARIABLE: sys.argv[3], STARTER_VARIABLE:
get_process_name(os.getpid())})
print("ready", flush=True)
while True:
    job = shop.begin(sys.argv[2])
    (job.path / "new").write_text("new")
    job.commit()
    job.close()
"""


@pytest.mark.full("takes 1 s")
def test_whoever_is_killed_at_whatever_moment_the_next_begins_on_clean_ground(
    depot: Depot, shop: Workshop, tmp_path: Path
) -> None:
    """The commands of git that were under way are ended first, as before every other attempt; whatever they leave."""
    depot.commit("many", **{f"folder{n % 20}/file{n}": f"{n}\n" for n in range(200)})
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    moments = random.Random(seed)
    of_run = f"made-{os.getpid()}/run_1"
    branch = depot.path / ".git/refs/heads/agentq/run_1"
    for _ in range(3):
        program = [sys.executable, "-c", MAKE, str(tmp_path / "home"), str(depot.path), f"{of_run}/1-a"]
        with subprocess.Popen(program, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]) as worker:
            assert worker.stdout is not None
            worker.stdout.readline()
            for _ in range(moments.randrange(1, 4)):
                until(lambda: not branch.exists(), "none to be there")
                until(branch.exists, "a worktree to be made")
            worker.kill()
        asyncio.run(end_dead_trees(of_run))

        job = shop.begin(depot.path, earlier=True)
        assert depot.git("status", "--porcelain", "--ignored", cwd=job.path) == ""
        assert len(list(job.path.glob("folder*/file*"))) == 200
        (job.path / "mine").write_text("mine")
        assert job.commit().files == 1
        job.close()

    assert depot.git("fsck", "--no-progress", "--no-dangling") == ""
    assert depot.git("for-each-ref", "--format=%(refname)", "refs/heads") == "refs/heads/main"
