"""Real server processes on free ports: `agentq serve`, over a Redis or Valkey of the test's own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx
from starlette.routing import Match
from support.crew import TIMES
from support.servers import Server, free_port, until

from agentq.coordinator.config.settings import Settings
from agentq.coordinator.model.ids import new_nonce
from agentq.coordinator.model.spec import RunSpec
from agentq.coordinator.runs.queries import RunQueries
from agentq.coordinator.runs.verbs import RunVerbs
from agentq.coordinator.security.tokens import Tokens
from agentq.server.app import list_routes

OUTLASTS = {"lease_ms": 60_000, "forget_ms": 30_000}
"""A lease that outlasts every test, however slow the machine: one that is to run out is ended, or made short."""
SHORT = {**TIMES, **OUTLASTS, "partitions": 1}
COMMAND = {"kind": "command", "argv": ["true"]}


class Serving:
    """One `agentq serve`, which can be killed and started again at its port, and those who talk with it."""

    def __init__(
        self,
        store: Server,
        folder: Path,
        *options: str,
        namespace: str = "",
        port: int = 0,
        host: str = "127.0.0.1",
        environment: Mapping[str, str] | None = None,
        **settings: object,
    ) -> None:
        own = {"url": store.url, "namespace": namespace or f"http-{new_nonce()}", "home": str(folder)}
        self.settings = Settings.model_validate({**own, **SHORT, **settings})
        self.folder = folder
        says_who = {"--require-tokens", "--insecure-no-tokens", "--open-runners"} & {*options}
        self.options = options if says_who or not host.startswith("127.") else ("--no-token", *options)
        """Unless a test is of tokens, those on this machine need none."""
        self.host = host
        self.port = port or free_port()
        self.environment = environment or {}
        self.log = folder / f"serve-{self.port}.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.queue = RunVerbs.open(self.settings)
        self.store = self.queue.store
        self.records = RunQueries(self.store)

    @property
    def url(self) -> str:
        scheme = "https" if "--tls-cert" in self.options else "http"
        return f"{scheme}://{self.host if self.host.startswith('127.') else '127.0.0.1'}:{self.port}"

    def start(self) -> Serving:
        """Start the process and wait until it is ready."""
        argv = [sys.executable, "-m", "agentq.cli.main", "serve", "--host", self.host, "--port", str(self.port)]
        variables = {**os.environ, **self.settings.to_environment(), **self.environment}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*argv, *self.options], env=variables, stdin=subprocess.DEVNULL, stderr=log, stdout=log
            )
        try:
            until(self.answers, "the server to answer", 120)
        except BaseException:
            self.stop()  # or it would be found by whichever test runs when it is forgotten
            raise
        return self

    def answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text()
        try:
            return httpx.get(f"{self.url}/health", timeout=5, verify=False).status_code == 200
        except httpx.TransportError:
            return False

    def client(self, token: str | None = None, **options: Any) -> httpx.Client:
        """A client; with a token, it shows that."""
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        given: dict[str, Any] = {"base_url": self.url, "timeout": 40, "headers": headers, "verify": False, **options}
        return httpx.Client(**given)

    def token(self, *scopes: str, **options: Any) -> str:
        """A new token."""
        return Tokens(self.store).new("test", scopes, **options)[1]

    def submit(self, **fields: object) -> str:
        """A run, past the server."""
        return self.queue.submit(RunSpec.checked(**{**COMMAND, **fields})).id

    def peak_memory_kb(self) -> int:
        """The most that it has ever had in memory."""
        assert self.process is not None
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0])

    def said(self) -> str:
        """Its log so far."""
        return self.log.read_text(encoding="utf-8")

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)
        if number in (signal.SIGKILL, signal.SIGTERM):
            self.process.wait(timeout=30)

    def stop_process(self) -> None:
        """End the process, and nothing else: it can be started again."""
        assert self.process is not None
        self.signal(signal.SIGKILL)

    def stop(self) -> None:
        """End the process, whatever state it is in; nothing may have gone wrong inside it."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.signal(signal.SIGKILL)
        self.store.connection.close()

    def check(self) -> None:
        """Nothing went wrong that it did not foresee, and nothing secret was written down."""
        said = self.said()
        assert "Traceback" not in said, said
        assert not re.search(r"aq_[a-z]+_[0-9a-f]{12}_[0-9a-f]", said), said


def asked_of(answer: httpx.Response) -> tuple[str, str]:
    """The method and the route of what was answered; no route, if there is none."""
    asked = answer.request
    scope = {"type": "http", "method": asked.method, "path": asked.url.path}
    found = (route.path for route in list_routes() if route.matches(scope)[0] is Match.FULL)
    return asked.method, next(found, "")


MakeServing = Callable[..., Serving]
