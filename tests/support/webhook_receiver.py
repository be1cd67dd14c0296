"""A real receiver of webhooks, which can fail, hang, redirect and talk too much."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from agentq.sdk.webhooks import VerifiedMessage, verify

AT_HOME = {
    "AGENTQ_SERVER_WEBHOOK_NETWORKS": "127.0.0.0/8",
    "AGENTQ_SERVER_WEBHOOK_HTTP": "true",
    "AGENTQ_SERVER_WEBHOOK_TIMEOUT_MS": "700",
}
"""For a server whose receivers are on this machine."""


@dataclass
class Receiver:
    """What came in, in order, and how it answers: a status, or a word for something worse."""

    answers: list[int | str] = field(default_factory=list)
    """For the next requests, one each; 204 afterwards."""
    retry_after: str = ""
    """What it says with each status that is a no."""
    got: list[tuple[Mapping[str, str], bytes]] = field(default_factory=list)
    connections: int = 0
    url: str = ""
    released: threading.Event = field(default_factory=threading.Event)
    """Ends what hangs."""
    pace: threading.Event | None = None

    def messages(self, secret: str) -> list[VerifiedMessage]:
        """What came, each checked."""
        return [verify(body, headers, secret) for headers, body in list(self.got)]

    def told(self) -> list[str]:
        """The ids of the messages that it said yes or no to."""
        return [headers["webhook-id"] for headers, _ in list(self.got)]


def handler_of(receiver: Receiver) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            answer = receiver.answers.pop(0) if receiver.answers else 204
            receiver.got.append((headers, body))
            if answer == "hang":
                receiver.released.wait(60)
            elif answer == "vanish":
                self.close_connection = True
            elif answer == "garbage":
                self.wfile.write(b"hello there\r\n\r\n")
            elif answer == "flood":
                self.send_response(200)
                self.end_headers()
                piece = b"x" * 65536
                for _ in range(160):
                    self.wfile.write(piece)
            elif answer == "endless head":
                for _ in range(20):
                    self.wfile.write(b"x: " + b"y" * 8000)
            else:
                self.send_response(int(answer))
                if receiver.retry_after and int(answer) >= 400:
                    self.send_header("Retry-After", receiver.retry_after)
                if 300 <= int(answer) < 400:
                    self.send_header("Location", f"{receiver.url}/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as it is called
            """Nothing is printed."""

    return Handler


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever hung up on us had enough; that is what some tests are about."""


@contextmanager
def receiving(context: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> Iterator[Receiver]:
    """A receiver, while it is needed."""
    receiver = Receiver()
    server = _Server(("127.0.0.1", 0), handler_of(receiver))
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    receiver.url = f"http{'s' if context else ''}://{host}:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield receiver
    finally:
        receiver.released.set()
        server.shutdown()
        thread.join()
        server.server_close()
