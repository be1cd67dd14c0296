"""A worker of agentq as RQ's tools see it: `rq:worker:<id>`, with a heartbeat, a state, its counts and its channel.

It is registered by RQ's own code and expires when the process is gone. Commands on its channel are obeyed: `stop-job`
cancels the run of that job, `shutdown` drains the worker.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Sequence
from typing import Any

import redis
from redis import Redis
from rq.command import parse_payload
from rq.utils import now, utcformat
from rq.worker import BaseWorker, WorkerStatus

from agentq.worker.rq.job_runner import WORKER_TTL_S
from agentq.worker.worker_thread import OnFailure, WorkerThread

log = logging.getLogger("agentq.worker")

HEARTBEAT_S = 10
COMMAND_POLL_S = 1.0


class RqRegistration:
    """Keeps a worker registered with RQ."""

    def __init__(
        self,
        client: Redis,
        name: str,
        queues: Sequence[str],
        busy: Callable[[], int],
        stop_job: Callable[[str], None],
        failed: OnFailure,
    ) -> None:
        self.worker = BaseWorker(list(queues), name=name, connection=client, prepare_for_work=True)
        self._busy = busy
        self._stop_job = stop_job
        self._state = ""
        self._channel = client.pubsub(ignore_subscribe_messages=True)  # type: ignore[no-untyped-call]
        self._closed = threading.Event()
        self._thread = WorkerThread(self._listen, "agentq-rq-commands", failed)

    def start(self) -> None:
        # Every tool that sees the worker can send it commands.
        self._channel.subscribe(self.worker.pubsub_channel_name)
        self.worker.register_birth()
        self.update_state()
        self._thread.start()

    def beat(self) -> None:
        """Renew the heartbeat. A record that was lost is written again."""
        worker = self.worker
        if not worker.connection.exists(worker.key):
            worker.connection.delete(worker.key)
            worker.register_birth()
            self._state = ""
        worker.connection.hset(worker.key, "last_heartbeat", utcformat(now()))
        worker.connection.expire(worker.key, WORKER_TTL_S)
        self.update_state()

    def may_have_changed(self) -> None:
        """A job has begun, and the process that executes it may have set the state to busy."""
        self._state = ""

    def update_state(self) -> None:
        """Update the state. Processes that execute jobs set it to busy; this notices the end of the last one."""
        busy = WorkerStatus.BUSY if self._busy() else WorkerStatus.IDLE
        if busy != self._state:
            self.worker.set_state(busy)
            # As long as it is busy the next look asks again, as what it says may cross what an execution says.
            self._state = busy if busy is WorkerStatus.IDLE else ""

    def close(self) -> None:
        self._closed.set()
        self._thread.join()
        self.worker.register_death()

    def _listen(self) -> None:
        channel = self._channel
        while not self._closed.is_set():
            try:
                message = channel.get_message(timeout=COMMAND_POLL_S)
            except (redis.ConnectionError, redis.TimeoutError):
                # It subscribes again by itself, once the server is there.
                self._closed.wait(COMMAND_POLL_S)
                continue
            if message is not None:
                self._read(message)
        channel.close()

    def _read(self, message: Any) -> None:
        try:
            payload = parse_payload(message)
        except (ValueError, TypeError, KeyError):
            log.warning("a command on RQ's channel cannot be read and is passed over")
            return
        if isinstance(payload, dict):
            self._obey(payload)

    def _obey(self, payload: dict[str, Any]) -> None:
        command = payload.get("command")
        if command == "stop-job" and payload.get("job_id"):
            self._stop_job(str(payload["job_id"]))
        elif command == "shutdown":
            os.kill(os.getpid(), signal.SIGINT)
