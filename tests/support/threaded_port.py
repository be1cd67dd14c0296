"""A port of this machine behind which each connection has a thread."""

from __future__ import annotations

import contextlib
import socket
import threading
from abc import ABC, abstractmethod
from typing import Self


class Doorway(ABC):
    """Open as long as it is entered."""

    def __init__(self, scheme: str) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"{scheme}://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        # A thread that waits in accept is woken by shutting down, not by closing.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    @abstractmethod
    def _serve(self, client: socket.socket) -> None:
        """Whoever has come in."""
