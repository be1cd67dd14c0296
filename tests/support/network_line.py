"""The network between one worker and the server: it can be cut without a word, reset, and slow."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress

from support.http_servers import Serving
from support.servers import Server

RESET = struct.pack("ii", 1, 0)
"""Linger for no time at all: a close sends RST, and what was not sent is gone."""


class Line:
    """A TCP proxy.

    `cut` is a black hole: connections stay open, no FIN and no RST, nothing arrives, new ones are taken and get no
    answer. After `mend` everything arrives that was on its way, as late as that, as TCP has it.
    """

    def __init__(self, server: Server | Serving | int) -> None:
        """To a server of the test, or to whatever listens at a port of this machine."""
        self.delay_ms = 0
        """By which each reply comes later."""
        self._server = server
        self._writers: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._whole = asyncio.Event()
        self._whole.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        kind = "redis" if isinstance(server, Server) else "http"
        self.url = f"{kind}://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._run, name="line", daemon=True)

    def __enter__(self) -> Line:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._do(self._whole.set)
        self._do(self._abort)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def cut(self) -> None:
        self._do(self._whole.clear)

    def mend(self) -> None:
        self._do(self._whole.set)

    def reset(self) -> None:
        """RST on every connection."""
        self._do(self._abort)

    def lead_to(self, server: Server | Serving | int) -> None:
        """From now on the address is another server's, as after a failover; every connection is reset."""
        self._server = server
        self.reset()

    def _do(self, act: Callable[[], None]) -> None:
        done = threading.Event()
        self._loop.call_soon_threadsafe(act)
        self._loop.call_soon_threadsafe(done.set)
        assert done.wait(20)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        listening = self._loop.run_until_complete(asyncio.start_server(self._serve, sock=self._listener))
        self._loop.run_forever()
        listening.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0.05))
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        with suppress(OSError, asyncio.CancelledError):
            await self._whole.wait()
            there, back = await self._upstream()
            self._writers.add(back)
            await asyncio.gather(self._pump(reader, back, lambda: 0), self._pump(there, writer, lambda: self.delay_ms))
            self._writers.discard(back)
        self._writers.discard(writer)
        writer.close()

    async def _upstream(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if isinstance(self._server, Server):
            return await asyncio.open_unix_connection(str(self._server.socket))
        port = self._server if isinstance(self._server, int) else self._server.port
        return await asyncio.open_connection("127.0.0.1", port)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay: Callable[[], int]) -> None:
        try:
            while piece := await reader.read(65536):
                await asyncio.sleep(delay() / 1000)
                await self._whole.wait()
                writer.write(piece)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    def _abort(self) -> None:
        for writer in self._writers:
            connection = writer.get_extra_info("socket")
            if connection.family != socket.AF_UNIX:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            writer.transport.abort()
        self._writers.clear()
