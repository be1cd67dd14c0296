"""What was in a worker's environment cannot be read by its runs in /proc, neither from it nor from what started it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest
from support.crew import Crew
from support.http_servers import Serving
from support.servers import Server

from agentq.coordinator.runs.logs import Logs

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows environments in /proc")
SECRET = "hunter2-of-the-worker"
ANCESTORS = (
    'pid=$PPID; while [ "$pid" -gt 1 ]; do echo "process $pid"; tr "\\0" "\\n" < /proc/$pid/environ; echo; '
    'pid=$(sed "s/.*) . \\([0-9]*\\) .*/\\1/" /proc/$pid/stat); done'
)
HIDDEN = """
import os, subprocess
from agentq.coordinator.security.environment_memory import hide_environment
hide_environment()
print(os.environ["AGENTQ_URL"])
print(subprocess.run(["sh", "-c", 'echo "$AGENTQ_URL"'], capture_output=True, text=True, check=True).stdout, end="")
print(open("/proc/self/environ").read())
"""
DUMPABLE = """
import ctypes, os, subprocess, sys
from agentq.coordinator.security.environment_memory import hide_memory
hide_memory()
print(ctypes.CDLL(None).prctl(3))
os.environ["AGENTQ_RUN"] = "ns/run/1-a"
subprocess.run([sys.executable, "-c", "import ctypes; print(ctypes.CDLL(None).prctl(3))"], check=True)
subprocess.run([sys.executable, "-c", sys.argv[1]], check=True) if len(sys.argv) > 1 else None
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
def test_a_program_that_lasts_keeps_its_memory_and_what_it_starts_or_is_in_a_run_is_as_others() -> None:
    done = subprocess.run([sys.executable, "-uc", DUMPABLE, DUMPABLE], capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["0", "1", "1", "1"]


@LINUX
@pytest.mark.full("takes 2 s")
def test_a_run_cannot_read_the_memory_of_its_worker(valkey: Server, make_crew: Callable[..., Crew]) -> None:
    """Root may, unless it is kept from that as here. Of its own, the shell may read what is not at the beginning."""
    crew = make_crew(valkey)
    if os.geteuid() == 0:
        crew.within = ["setpriv", "--bounding-set", "-sys_ptrace"]
    crew.worker()
    run = crew.submit("head -c 1 /proc/$PPID/mem; head -c 1 /proc/$$/mem")

    crew.wait([run])

    shown = "".join(entry.text for entry in Logs(crew.queue.store).read(run))
    assert [line.rpartition(": ")[2] for line in shown.splitlines()] == ["Permission denied", "Input/output error"]


@LINUX
def test_the_memory_of_a_server_cannot_be_read_by_others_of_its_user(serving: Serving) -> None:
    assert serving.process is not None
    reader = ["head", "-c", "1", f"/proc/{serving.process.pid}/mem"]
    within = ["setpriv", "--bounding-set", "-sys_ptrace"] if os.geteuid() == 0 else []

    done = subprocess.run([*within, *reader], capture_output=True, text=True)

    assert done.stderr.rpartition(": ")[2].strip() == "Permission denied"


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
    if os.geteuid() == 0:
        assert "AGENTQ_WORKER_TOKEN=" in shown
        assert "AGENTQ_URL=" in shown
    else:
        assert "Permission denied" in shown
    assert SECRET not in shown
    assert f"AGENTQ_URL={valkey.url}" not in shown
