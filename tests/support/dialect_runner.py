"""A runner that behaves like the programs of the other system, and a client.

It polls sequentially, handles stops before runs, gives up after three errors in a row, reports a start before it polls
again, never registers again, and knows no leases or attempts.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal, TypeVar

import httpx
from support.http_servers import Serving, asked_of
from support.servers import until

from agentq.coordinator.errors import NotFound, WrongState
from agentq.coordinator.model.lifecycle import LIVE_STATES
from agentq.coordinator.runs.queries import RunFilter
from agentq.dialects.agent_orchestrator.examples import EXAMPLES

CLIENT_TIMEOUT_S = 35
ERRORS_MAX = 3
DETAILS = {"hostname": "host-1", "project_dir": "/srv/project"}
EXECUTOR = {"type": "autonomous", "command": "executors/echo"}
PROFILE = {**DETAILS, "executor_profile": "coding", "executor": {**EXECUTOR, "lifecycle": "persistent"}}
BODIES: dict[str, dict[str, Any]] = {
    "a": {},
    "b": {**DETAILS, "executor_type": "claude-code", "tags": ["python"]},
    "v0.1-v0.6": {**PROFILE, "executor": EXECUTOR},
    "c": PROFILE,
}
KINDS_OF_TWO = ({"sync_scripts", "remove_scripts"}, {"stop_runs", "stop_sessions"})
"""Answers to a poll that say one thing in two fields."""
Dialect = Literal["a", "b", "v0.1-v0.6", "c"]
Party = TypeVar("Party", "Client", "SteppedRunner", "OldRunner")


class Client:
    """A client of the dialect."""

    def __init__(self, serving: Serving, token: str | None = None) -> None:
        self.serving = serving
        self.http = serving.client(token, event_hooks={"response": [_like_its_example]})

    def start(self, dialect: Dialect = "c", prompt: str = "do it", **fields: Any) -> dict[str, Any]:
        """Submit a run; returns the response."""
        body = {"type": "start_session", **said(dialect, prompt), **fields}
        answer = self.http.post("/runs", json=body)
        assert answer.status_code in (200, 201), answer.text
        told: dict[str, Any] = answer.json()
        return told

    def resume(self, session: str, prompt: str = "go on", **fields: Any) -> dict[str, Any]:
        body = {"type": "resume_session", "session_id": session, "parameters": {"prompt": prompt}, **fields}
        answer = self.http.post("/runs", json=body)
        assert answer.status_code == 201, answer.text
        told: dict[str, Any] = answer.json()
        return told

    def status(self, run: str) -> str:
        return str(self.http.get(f"/runs/{run}").json()["status"])

    def session(self, session: str) -> str:
        return str(self.http.get(f"/sessions/{session}/status").json()["status"])

    def result(self, session: str) -> httpx.Response:
        return self.http.get(f"/sessions/{session}/result")


def _like_its_example(answer: httpx.Response) -> None:
    """The response has all the names of the documented example."""
    at = asked_of(answer)
    if at in EXAMPLES and answer.status_code in (200, 201) and at[1] != "/runner/runs":
        answer.read()
        shown, told = EXAMPLES[at].response, answer.json()
        pairs = zip(shown, told, strict=False) if isinstance(shown, list) else [(shown, told)]
        assert all(one.keys() <= other.keys() for one, other in pairs), at


def said(dialect: Dialect, prompt: str) -> dict[str, Any]:
    """How a dialect says what an agent is to do."""
    name = f"task-{time.monotonic_ns()}"
    bodies: dict[Dialect, dict[str, Any]] = {
        "a": {"session_name": name, "prompt": prompt},
        "b": {"prompt": prompt},
        "v0.1-v0.6": {"parameters": {"prompt": prompt}},
        "c": {"parameters": {"prompt": prompt}},
    }
    return bodies[dialect]


class SteppedRunner:
    """A runner that acts step by step, as the test says."""

    def __init__(self, serving: Serving, dialect: Dialect = "c", token: str | None = None, **fields: Any) -> None:
        self.http = serving.client(token, event_hooks={"response": [_like_its_example]})
        self.dialect = dialect
        self.id = str(self.register({**BODIES[dialect], **fields})["runner_id"])

    def register(self, body: dict[str, Any]) -> dict[str, Any]:
        answer = self.http.post("/runner/register", json=body)
        assert answer.status_code == 200, answer.text
        told: dict[str, Any] = answer.json()
        return told

    def poll(self) -> dict[str, Any] | None:
        """The answer to a poll."""
        answer = self.http.get("/runner/runs", params={"runner_id": self.id}, timeout=CLIENT_TIMEOUT_S)
        assert answer.status_code in (200, 204), answer.text
        if answer.status_code == 204:
            assert answer.content == b""
            return None
        told: dict[str, Any] = answer.json()
        assert len(told) == 1 or set(told) in KINDS_OF_TWO, "one kind in each reply"
        return told

    def run(self) -> dict[str, Any]:
        """The run that it is given: what one has led to may come to the queue only after a poll has ended."""
        told: dict[str, Any] = {}

        def given() -> bool:
            told.update(self.poll() or {})
            return bool(told)

        until(given, "a run to be given", 60)
        assert "run" in told, told
        run: dict[str, Any] = told["run"]
        return run

    def report(self, run: str, what: str, **fields: Any) -> httpx.Response:
        answer = self.http.post(f"/runner/runs/{run}/{what}", json={"runner_id": self.id, **fields})
        assert answer.status_code == 200, answer.text
        assert answer.json() == {"ok": True}
        return answer

    def take(self) -> dict[str, Any]:
        """Take a run and report its start."""
        run = self.run()
        self.report(run["run_id"], "started")
        return run

    def beat(self) -> httpx.Response:
        return self.http.post("/runner/heartbeat", json={"runner_id": self.id})


class OldRunner:
    """A whole runner: a poller, a heart, a supervisor of processes."""

    def __init__(
        self,
        serving: Serving,
        dialect: Dialect = "c",
        argv: Callable[[dict[str, Any]], list[str]] = lambda _: ["true"],
        heartbeat_s: float = 0.5,
        url: str = "",
        **fields: Any,
    ) -> None:
        self.serving = serving
        self.url = url or serving.url
        self.dialect = dialect
        self.argv = argv
        self.heartbeat_s = heartbeat_s
        self.gave_up = False
        self.given: list[str] = []
        self.processes: dict[str, tuple[str, subprocess.Popen[bytes]]] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()
        with self._client() as http:
            answer = http.post("/runner/register", json={**BODIES[dialect], **fields})
            self.id = str(answer.json()["runner_id"])
        loops = (self._poll, self._beat, self._supervise)
        self._threads = [threading.Thread(target=loop, daemon=True) for loop in loops]
        for thread in self._threads:
            thread.start()

    def _client(self) -> httpx.Client:
        return self.serving.client(base_url=self.url, timeout=CLIENT_TIMEOUT_S)

    def close(self) -> None:
        self._ended.set()
        with self._client() as http, suppress(httpx.HTTPError):
            http.delete(f"/runners/{self.id}")  # which ends the poll that it waits in
        for thread in self._threads:
            thread.join(40)
        for _, process in self.processes.values():
            process.kill()
            process.wait()

    def _poll(self) -> None:
        errors = 0
        with self._client() as http:
            while not self._ended.is_set():
                try:
                    answer = http.get("/runner/runs", params={"runner_id": self.id})
                    answer.raise_for_status()
                    errors = 0
                except httpx.ReadTimeout:
                    continue
                except httpx.HTTPError:
                    errors += 1
                    if errors == ERRORS_MAX:
                        self.gave_up = True
                        return
                    self._ended.wait(errors)
                    continue
                if answer.status_code == 200 and not self._told(http, answer.json()):
                    return

    def _told(self, http: httpx.Client, told: dict[str, Any]) -> bool:
        """Do as told; false at the end."""
        if "deregistered" in told:
            return False
        if "stop_sessions" in told or "stop_runs" in told:
            for each in told.get("stop_sessions") or told["stop_runs"]:
                self._stop(http, each)
        elif "run" in told:
            self._begin(http, told["run"])
        return True

    def _begin(self, http: httpx.Client, run: dict[str, Any]) -> None:
        process = subprocess.Popen(self.argv(run), stdin=subprocess.DEVNULL)
        key = run["session_id"] if self.dialect == "c" else run["run_id"]
        with self._lock:
            self.given.append(run["run_id"])
            self.processes[key] = (run["run_id"], process)
        self._report(http, run["run_id"], "started")

    def _stop(self, http: httpx.Client, key: str) -> None:
        with self._lock:
            run, process = self.processes.pop(key, ("", None))
        if process is not None:
            process.terminate()
            process.wait()
            self._report(http, run, "stopped", signal="SIGTERM")

    def _supervise(self) -> None:
        with self._client() as http:
            while not self._ended.wait(0.05):
                with self._lock:
                    gone = [(key, *each) for key, each in self.processes.items() if each[1].poll() is not None]
                    for key, _, _ in gone:
                        del self.processes[key]
                for _, run, process in gone:
                    if process.returncode == 0:
                        self._report(http, run, "completed", status="success")
                    else:
                        self._report(http, run, "failed", error=f"Process exited with code {process.returncode}")

    def _report(self, http: httpx.Client, run: str, what: str, **fields: Any) -> None:
        """A report is sent until it was taken, as long as the server is away."""
        while not self._ended.is_set():
            try:
                http.post(f"/runner/runs/{run}/{what}", json={"runner_id": self.id, **fields}).raise_for_status()
                return
            except httpx.HTTPError:
                self._ended.wait(0.2)

    def _beat(self) -> None:
        with self._client() as http:
            while not self._ended.wait(self.heartbeat_s):
                try:
                    http.post("/runner/heartbeat", json={"runner_id": self.id})
                except httpx.HTTPError:
                    continue  # only logged, there


def is_polling(serving: Serving, runner: str) -> bool:
    """Whether a poll of a runner is held somewhere."""
    key = serving.store.key(0, "dialect_runner", runner)
    return serving.store.connection.command("HGET", key, "polls_until_ms") is not None


class Parties:
    """Runners and clients of one server, which are removed after the test."""

    def __init__(self, serving: Serving) -> None:
        self.serving = serving
        self._open: list[Client | SteppedRunner | OldRunner] = []

    def client(self, token: str | None = None) -> Client:
        return self._kept(Client(self.serving, token))

    def hand(self, dialect: Dialect = "c", token: str | None = None, **fields: Any) -> SteppedRunner:
        return self._kept(SteppedRunner(self.serving, dialect, token, **fields))

    def old(self, dialect: Dialect = "c", **options: Any) -> OldRunner:
        return self._kept(OldRunner(self.serving, dialect, **options))

    def _kept(self, party: Party) -> Party:
        self._open.append(party)
        return party

    def close(self) -> None:
        for party in self._open:
            if isinstance(party, OldRunner):
                party.close()
            else:
                party.http.close()
        if self.serving.process is not None and self.serving.process.poll() is None:
            self._clear()

    def _clear(self) -> None:
        self._cancelled()
        with self.serving.client() as http:
            for runner in http.get("/runners").json()["runners"]:
                http.delete(f"/runners/{runner['runner_id']}", params={"self": "true"})
        until(self._cancelled, "everything to end")

    def _cancelled(self) -> bool:
        """Whether nothing lives any more. The end of a child makes a turn of its parent, which is to end as well."""
        live = list(self.serving.records.all(RunFilter(states=LIVE_STATES)))
        for run in live:
            with suppress(WrongState, NotFound):  # it ended by itself meanwhile
                self.serving.queue.cancel(run.id, stop_ms=1)
        return not live
