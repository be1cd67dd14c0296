"""A whole runner, to copy from: it takes runs of agents over HTTP and executes a command for each, the prompt on stdin.

    agentq serve &
    python examples/runner.py http://127.0.0.1:8765 -- claude -p &
    agentq submit --agent claude "Say hello"        # or POST /runs

What the command writes to stdout is the run's result; an exit code other than 0 fails the run. AGENTQ_TOKEN is shown to
a server that asks for a token (`agentq token new NAME --kind runner`). Nothing but the standard library.
"""

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

if "--" not in sys.argv[2:-1]:
    raise SystemExit(f"Usage: python {sys.argv[0]} URL -- COMMAND…")
URL, COMMAND = sys.argv[1].rstrip("/"), sys.argv[sys.argv.index("--") + 1 :]
HEADERS = {"Content-Type": "application/json"}
if os.environ.get("AGENTQ_TOKEN"):
    HEADERS["Authorization"] = f"Bearer {os.environ['AGENTQ_TOKEN']}"
processes: dict[str, subprocess.Popen[str]] = {}


def call(method: str, path: str, **body: object) -> dict:
    """Ask the server; while it is away, ask again."""
    while True:
        sent = json.dumps(body).encode() if body else None
        request = urllib.request.Request(URL + path, sent, HEADERS, method=method)
        try:
            with urllib.request.urlopen(request, timeout=35) as answer:
                return json.loads(answer.read() or "{}")
        except (OSError, http.client.HTTPException) as fault:
            if isinstance(fault, urllib.error.HTTPError) and fault.code < 500:
                raise SystemExit(f"{path}: {fault.read().decode()}") from None
            time.sleep(1)


def report(run: dict, how: str, **more: object) -> None:
    call("POST", f"/runner/runs/{run['run_id']}/{how}", runner_id=runner, **more)


def begin(run: dict) -> None:
    """Start the command, in a process group of its own, so that a stop ends all that it starts."""
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    try:
        process = subprocess.Popen(
            COMMAND, cwd=run["project_dir"], start_new_session=True, encoding="utf-8", errors="replace", **pipes
        )
    except OSError as fault:
        report(run, "failed", error=str(fault))
    else:
        processes[run["run_id"]] = process
        report(run, "started")
        threading.Thread(target=supervise, args=(run, process)).start()


def supervise(run: dict, process: subprocess.Popen[str]) -> None:
    """Read what it writes, all the time, and report how it ended."""
    output, errors = process.communicate(run["prompt"])
    if processes.pop(run["run_id"], None) is None:
        report(run, "stopped", signal="SIGTERM")
    elif process.returncode:
        report(run, "failed", error=errors.strip()[-2000:] or f"Process exited with code {process.returncode}")
    else:
        call("POST", f"/sessions/{run['session_id']}/events", event_type="result", result_text=output[-100_000:])
        report(run, "completed", status="success")


def stop(process: subprocess.Popen[str]) -> None:
    """End all that a run has started; it may tidy up for five seconds."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(process.pid, number)
            process.wait(5)


for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda *_: sys.exit())
runner = call("POST", "/runner/register", hostname=os.uname().nodename)["runner_id"]
print(f"runner {runner} at {URL}", flush=True)
try:
    # A poll is held for half a minute, and tells the server that the runner lives.
    while "deregistered" not in (told := call("GET", f"/runner/runs?runner_id={runner}")):
        if "run" in told:
            begin(told["run"])
        for run_id in told.get("stop_runs", ()):
            if process := processes.pop(run_id, None):
                threading.Thread(target=stop, args=[process]).start()
finally:
    call("DELETE", f"/runners/{runner}?self=true")  # what it still runs goes to another
    for process in list(processes.values()):
        stop(process)
