"""A proxy in front of a server that loses replies."""

from __future__ import annotations

import contextlib
import socket
import threading

from doorway import Doorway
from servers import Server


class Proxy(Doorway):
    """Passes everything on, but loses the reply to the first request that contains a word: it takes effect unheard."""

    def __init__(self, server: Server | int, word: bytes) -> None:
        """In front of a store, or of whatever listens at a port of this machine."""
        self.lost = 0
        self._word = word
        self._server = server
        super().__init__("http" if isinstance(server, int) else "redis")

    def _serve(self, client: socket.socket) -> None:
        with client, self._upstream() as upstream, contextlib.suppress(OSError):
            back = threading.Thread(target=self._return, args=(upstream, client), daemon=True)
            back.start()
            while request := client.recv(65536):
                if self._word in request and not self.lost:
                    self.lost += 1
                    self._lose(request, client, upstream, back)
                    return
                upstream.sendall(request)

    def _upstream(self) -> socket.socket:
        if isinstance(self._server, int):
            return socket.create_connection(("127.0.0.1", self._server))
        upstream = socket.socket(socket.AF_UNIX)
        with contextlib.suppress(OSError):
            upstream.connect(str(self._server.socket))
        return upstream

    def _lose(self, request: bytes, client: socket.socket, upstream: socket.socket, back: threading.Thread) -> None:
        """Cut the way back first, and only then pass the request on."""
        client.shutdown(socket.SHUT_WR)
        upstream.sendall(request)
        # The server reads everything before the end of the stream, and then closes.
        upstream.shutdown(socket.SHUT_WR)
        back.join()

    def _return(self, upstream: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while reply := upstream.recv(65536):
                with contextlib.suppress(BrokenPipeError):
                    client.sendall(reply)
