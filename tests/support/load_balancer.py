"""What stands before several servers: it passes each connection on to the first of them that takes it."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Sequence

from support.threaded_port import Doorway


class Balancer(Doorway):
    """A port of its own, in front of others."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._ports = ports
        super().__init__("http")

    def _serve(self, client: socket.socket) -> None:
        with client:
            for port in self._ports:
                with contextlib.suppress(ConnectionRefusedError):
                    upstream = socket.create_connection(("127.0.0.1", port))
                    with upstream:
                        back = threading.Thread(target=_pass_on, args=(upstream, client), daemon=True)
                        back.start()
                        _pass_on(client, upstream)
                        back.join()
                    return


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    """Everything from one to the other, and its end."""
    with contextlib.suppress(OSError):
        while piece := source.recv(65536):
            target.sendall(piece)
    for end in (source, target):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
