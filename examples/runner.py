"""A whole runner, to copy from: it takes runs of agents over HTTP and executes a command for each, the prompt on stdin.

    agentq serve &
    python examples/runner.py http://127.0.0.1:8765 -- claude -p &
    agentq submit --agent claude "Say hello"        # or POST /runs

What the command writes to stdout is the run's result; an exit code other than 0 fails the run. AGENTQ_TOKEN is shown to
a server that asks for a token (`agentq token new NAME --kind runner`). Nothing but the standard library.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

URL, COMMAND = sys.argv[1].rstrip("/"), sys.argv[sys.argv.index("--") + 1 :]
HEADERS = {"Content-Type": "application/json"}
if os.environ.get("AGENTQ_TOKEN"):
    HEADERS["Authorization"] = f"Bearer {os.environ['AGENTQ_TOKEN']}"
processes: dict[str, subprocess.Popen[bytes]] = {}
stopped: set[str] = set()


def call(method: str, path: str, body: object = None) -> dict:
    """Ask the server; what it is asked for while it is away is asked again."""
    while True:
        request = urllib.request.Request(URL + path, json.dumps(body or {}).encode(), HEADERS, method=method)
        try:
            with urllib.request.urlopen(request, timeout=35) as answer:
                return json.loads(answer.read() or b"null") or {}
        except urllib.error.HTTPError as refused:
            if refused.code < 500:
                raise SystemExit(f"{path}: {refused.read().decode()}") from None
        except OSError:
            pass
        time.sleep(1)


def execute(run: dict) -> None:
    """Run the command in a process group of its own, so that a stop ends all that it has started."""
    me = {"runner_id": runner}
    place = run["project_dir"] if os.path.isdir(run["project_dir"] or "") else None
    process = subprocess.Popen(
        COMMAND,
        cwd=place,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    processes[run["run_id"]] = process
    call("POST", f"/runner/runs/{run['run_id']}/started", me)
    threading.Thread(target=supervise, args=(run, process, me)).start()


def supervise(run: dict, process: subprocess.Popen[bytes], me: dict) -> None:
    """Read what it writes, all the time, and report how it ended."""
    output, errors = process.communicate(run["prompt"].encode())
    path = f"/runner/runs/{run['run_id']}"
    del processes[run["run_id"]]
    if run["run_id"] in stopped:
        call("POST", f"{path}/stopped", {**me, "signal": "SIGTERM"})
    elif process.returncode:
        last = errors.decode(errors="replace").strip()[-2000:]
        call("POST", f"{path}/failed", {**me, "error": last or f"Process exited with code {process.returncode}"})
    else:
        text = output.decode(errors="replace")[-100_000:]
        call("POST", f"/sessions/{run['session_id']}/events", {"event_type": "result", "result_text": text})
        call("POST", f"{path}/completed", {**me, "status": "success"})


def beat(every_s: float) -> None:
    """Say that we live."""
    while True:
        time.sleep(every_s)
        call("POST", "/runner/heartbeat", {"runner_id": runner})


told = call("POST", "/runner/register", {"hostname": os.uname().nodename})
runner = told["runner_id"]
threading.Thread(target=beat, args=(told["heartbeat_interval_seconds"],), daemon=True).start()
print(f"runner {runner} at {URL}", flush=True)
while "deregistered" not in (told := call("GET", f"/runner/runs?runner_id={runner}")):
    if "run" in told:
        execute(told["run"])
    for run_id in told.get("stop_runs", ()):
        if run_id in processes:
            stopped.add(run_id)
            os.killpg(processes[run_id].pid, signal.SIGTERM)
