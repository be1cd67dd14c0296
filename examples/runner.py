"""A whole runner, to copy from: it takes runs of agents over HTTP and executes a command for each, the prompt on stdin.

    agentq serve --open-runners &
    python examples/runner.py http://127.0.0.1:8765 -- claude -p &
    agentq submit --agent claude "Say hello"        # or POST /runs

What the command writes to stdout is the run's result; an exit code other than 0 fails the run. AGENTQ_TOKEN is shown to
a server that asks for a token (`agentq token new NAME --kind runner`). Nothing but the standard library.

A server that has heard no poll for RUNNER_HEARTBEAT_TIMEOUT seconds gives the runs to another runner. So this one ends
its processes when its polls were not answered for so long, and at its own end, whether the server is there or not.
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
LEASE_S = float(os.environ.get("RUNNER_HEARTBEAT_TIMEOUT", "120"))
GOODBYE_S = 5
processes: dict[str, subprocess.Popen[str]] = {}
answered = time.monotonic()
"""When the server answered the last poll."""


class Refused(Exception):
    """The server does not want what it was sent."""


def ask(method: str, path: str, timeout: float = 35, **body: object) -> dict:
    """One request."""
    sent = json.dumps(body).encode() if body else None
    request = urllib.request.Request(URL + path, sent, HEADERS, method=method)
    with urllib.request.urlopen(request, timeout=timeout) as answer:
        return json.loads(answer.read() or "{}")


def call(method: str, path: str, **body: object) -> dict:
    """Ask the server; while it is away, ask again."""
    while True:
        try:
            return ask(method, path, **body)
        except (OSError, http.client.HTTPException) as fault:
            if isinstance(fault, urllib.error.HTTPError) and fault.code < 500:
                raise Refused(f"{path}: {fault.read().decode()}") from None
            time.sleep(1)


def report(run: dict, how: str, **more: object) -> None:
    try:
        call("POST", f"/runner/runs/{run['run_id']}/{how}", runner_id=runner, **more)
    except Refused as refused:  # the run is another runner's by now
        print(refused, file=sys.stderr)


def begin(run: dict) -> None:
    """Start the command, in a process group of its own, so that a stop ends all that it starts."""
    global starting
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    session = dict.fromkeys(("AGENTQ_SESSION", "AGENT_SESSION_NAME", "AGENT_SESSION_ID"), run["session_id"])
    starting = True
    try:
        processes[run["run_id"]] = process = subprocess.Popen(
            COMMAND,
            cwd=run["project_dir"],
            env={**os.environ, **session},
            start_new_session=True,
            encoding="utf-8",
            errors="replace",
            **pipes,
        )
    except OSError as fault:
        process, why = None, str(fault)
    starting = False
    if ending:
        sys.exit()
    if process is None:
        report(run, "failed", error=why)
    else:
        report(run, "started")
        threading.Thread(target=supervise, args=(run, process), daemon=True).start()


def supervise(run: dict, process: subprocess.Popen[str]) -> None:
    """Read what it writes, all the time, and report how it ended."""
    output, errors = process.communicate(run["prompt"])
    if run["run_id"] in given_up:
        return
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


given_up: set[str] = set()
"""Runs that another runner may have by now, of which this one reports nothing more."""


def give_up() -> None:
    """End everything that runs here."""
    given_up.update(processes)
    stopping = [threading.Thread(target=stop, args=[each]) for each in list(processes.values())]
    processes.clear()
    for each in stopping:
        each.start()
    for each in stopping:
        each.join()


def watch() -> None:
    """Give up when the server must believe that this runner is gone."""
    while True:
        time.sleep(0.2)
        if processes and time.monotonic() - answered > LEASE_S:
            print(f"no poll was answered for {LEASE_S:g} s; ending {len(processes)} processes", file=sys.stderr)
            give_up()


starting = ending = False


def end(*_: object) -> None:
    """Leave at once; or, where a process is just being started, when it is known and can be ended."""
    global ending
    ending = True
    if not starting:
        sys.exit()


for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, end)
runner = call("POST", "/runner/register", hostname=os.uname().nodename)["runner_id"]
print(f"runner {runner} at {URL}", flush=True)
threading.Thread(target=watch, daemon=True).start()
try:
    # A poll is held for half a minute, and tells the server that the runner lives.
    while "deregistered" not in (told := call("GET", f"/runner/runs?runner_id={runner}")):
        answered = time.monotonic()
        if "run" in told:
            begin(told["run"])
        for run_id in told.get("stop_runs", ()):
            if process := processes.pop(run_id, None):
                threading.Thread(target=stop, args=[process]).start()
except Refused as refused:
    sys.exit(str(refused))
finally:
    give_up()
    with contextlib.suppress(OSError, http.client.HTTPException):  # else the server finds out by itself
        ask("DELETE", f"/runners/{runner}?self=true", GOODBYE_S)  # what it still ran goes to another
