"""The protocol of workers that do not reach the store, spoken by hand: whatever anybody may say."""

from __future__ import annotations

import json
from contextlib import ExitStack
from itertools import count
from typing import Any

import pytest
from support.http_servers import Serving
from support.snapshot import take_snapshot
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from agentq.coordinator.model.spec import RunSpec
from agentq.coordinator.runs.verbs import Claim
from agentq.coordinator.workers.lease import WorkerIdentity, WorkerLease

_names = count()
opened = ExitStack()
"""The connections that there are."""


class Peer:
    """Somebody who speaks the protocol, and may say anything."""

    def __init__(self, serving: Serving, token: str | None = None, *, init: dict[str, Any] | str | None = None) -> None:
        self.worker = f"peer-{next(_names)}"
        self.numbers = count(1)
        headers = {"Authorization": f"Bearer {token or serving.token('work', kind='worker')}"}
        if token == "":
            headers = {}
        url = f"{serving.url.replace('http', 'ws')}/worker"
        self.socket: ClientConnection = opened.enter_context(connect(url, additional_headers=headers, max_size=None))
        said = {"type": "init", "protocol": 1, "version": "0", "worker": self.worker, "purpose": "work"}
        init = init if isinstance(init, str) else {**said, **(init or {})}
        self.socket.send(init if isinstance(init, str) else json.dumps(init))
        self.welcome = json.loads(self.socket.recv(10))

    def ask(self, kind: str, **fields: Any) -> Any:
        """A question, and its answer or refusal."""
        self.socket.send(json.dumps({"type": kind, "id": next(self.numbers), **fields}))
        return json.loads(self.socket.recv(10))

    def call(self, script: str, *words: object, partition: int = 0) -> Any:
        return self.ask("call", script=script, partition=partition, words=words)

    def register(self, queue: str = "default", **about: object) -> Peer:
        identity = WorkerIdentity.model_validate({"id": self.worker, "queues": [queue], **about}).model_dump_json()
        self.epoch = (self.call("worker/register", self.worker, "0", "op", 1, "0", identity).get("reply") or [0, "0"])[
            1
        ]
        return self


def closed_with(serving: Serving, **how: Any) -> int:
    """The code with which somebody is turned away."""
    with pytest.raises(ConnectionClosed) as closed:
        Peer(serving, **how)
    assert closed.value.rcvd is not None
    return int(closed.value.rcvd.code)


def others_run(serving: Serving) -> Claim:
    """A run that another worker holds."""
    queue = f"other-{next(_names)}"
    lease = WorkerLease(serving.store, WorkerIdentity(id=queue, queues=(queue,)), serving.settings)
    lease.register()
    serving.submit(queue=queue)
    return lease.claim(1)[0]


def own_run(serving: Serving, peer: Peer, **fields: object) -> tuple[str, str]:
    """A run that this one holds, and its fence."""
    queue = f"own-{next(_names)}"
    run = serving.submit(queue=queue, **fields)
    peer.register(queue)
    lane = RunSpec.checked(kind="command", argv=["true"], queue=queue).lane
    claimed = peer.call("worker/claim", peer.worker, peer.epoch, "nonce", 1, 0, "", lane)["reply"]
    assert claimed[2] == run
    return run, claimed[3]


def everything(serving: Serving) -> dict[str, object]:
    """All that is stored, but for what the duties and the use of tokens leave behind at any time."""
    found = take_snapshot(serving.store.connection, serving.store.keyspace.base(0)).values
    told = {
        kind: values for kind, values in found.items() if kind not in ("cursors", "reaper_watch", "duty_owner", "token")
    }
    return {f"{kind} {parts}": value for kind, values in told.items() for parts, value in values.items()}
