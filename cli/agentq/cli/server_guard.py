"""Starts the server that agentq brings again when it dies: killed, out of memory, or ended by itself.

It waits for the lock that the kernel keeps as long as the server lives, so it costs nothing while all is well. A server
that was told to stop, as by `agentq down`, stays stopped.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from agentq.coordinator.clock import monotonic_ms
from agentq.coordinator.errors import AgentqError
from agentq.coordinator.storage.embedded import EmbeddedServer

PAUSE_S, PAUSE_S_MAX = 0.5, 15.0
"""Between two looks: longer each time that the server dies soon, or cannot be started."""


def start_guard(server: EmbeddedServer, say: Callable[[str], None]) -> None:
    """Look after it in a thread, for as long as this process lives."""
    threading.Thread(target=_guard_loop, args=(server, say), name="agentq-server-guard", daemon=True).start()


def _guard_loop(server: EmbeddedServer, say: Callable[[str], None]) -> None:
    pause_s, said, rest = PAUSE_S, "", threading.Event()
    while True:
        began_ms = monotonic_ms()
        server.wait_until_gone()
        if monotonic_ms() - began_ms > PAUSE_S_MAX * 1000:
            pause_s, said = PAUSE_S, ""
        if server.was_killed():
            sentence = _restart_server(server)
            if sentence != said:
                say(sentence)
            pause_s, said = min(2 * pause_s, PAUSE_S_MAX), sentence
        rest.wait(pause_s)


def _restart_server(server: EmbeddedServer) -> str:
    """Start it, and say what came of that."""
    words = server.last_words()
    try:
        server.start()
    except AgentqError as error:
        return str(error)
    return f"the server in {server.folder} had died ({words}) and was started again."
