"""What was in a worker's environment cannot be read by its runs in /proc, neither from it nor from what started it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
from support.crew import Crew
from support.servers import Server

from agentq.coordinator.logs import Logs

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows environments in /proc")
SECRET = "hunter2-of-the-worker"
ANCESTORS = (
    'pid=$PPID; while [ "$pid" -gt 1 ]; do echo "process $pid"; tr "\\0" "\\n" < /proc/$pid/environ; echo; '
    'pid=$(sed "s/.*) . \\([0-9]*\\) .*/\\1/" /proc/$pid/stat); done'
)
HIDDEN = """
import os, subprocess
from agentq.coordinator.environment_memory import hide_environment
hide_environment()
print(os.environ["AGENTQ_URL"])
print(subprocess.run(["sh", "-c", 'echo "$AGENTQ_URL"'], capture_output=True, text=True, check=True).stdout, end="")
print(open("/proc/self/environ").read())
"""


@LINUX
def test_the_memory_of_the_environment_shows_no_value_and_children_still_inherit_it() -> None:
    variables = {
        "AGENTQ_URL": f"redis://:{SECRET}@host",
        "AGENTQ_RUN": "ns/run/1-a",
        "EMPTY": "",
        "PATH": "/bin:/usr/bin",
    }

    done = subprocess.run([sys.executable, "-c", HIDDEN], env=variables, capture_output=True, text=True, check=True)

    own, child, memory = done.stdout.split("\n", 2)
    assert own == child == variables["AGENTQ_URL"]
    assert SECRET not in memory
    assert "AGENTQ_URL=\0" in memory
    assert "AGENTQ_RUN=ns/run/1-a\0" in memory, "runs are recognised by it"


@LINUX
@pytest.mark.full("takes 3 s")
def test_a_run_finds_no_secret_in_the_environment_of_any_process_above_it(
    valkey: Server, make_crew: Callable[..., Crew]
) -> None:
    crew = make_crew(valkey)
    crew.worker(environment={"AGENTQ_WORKER_TOKEN": SECRET, "AGENTQ_TOKEN": SECRET, "OTHER_API_KEY": SECRET})
    run = crew.submit(ANCESTORS)

    crew.wait([run])

    shown = "".join(entry.text for entry in Logs(crew.queue.store).read(run))
    assert "AGENTQ_WORKER_TOKEN=" in shown
    assert "AGENTQ_URL=" in shown
    assert SECRET not in shown
    assert f"AGENTQ_URL={valkey.url}" not in shown
