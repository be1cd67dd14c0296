"""Proxies in front of a server: one loses replies, one changes them."""

from __future__ import annotations

import contextlib
import socket
import threading

from support.servers import Server
from support.threaded_port import Doorway


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


class Renaming(Proxy):
    """Passes everything on, and replaces words in what the server says by others of the same length."""

    def __init__(self, server: Server, words: dict[bytes, bytes]) -> None:
        assert all(len(word) == len(other) for word, other in words.items())
        self._words = words
        super().__init__(server, b"no request has this word")

    def _return(self, upstream: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while reply := upstream.recv(65536):
                for word, other in self._words.items():
                    reply = reply.replace(word, other)
                client.sendall(reply)
