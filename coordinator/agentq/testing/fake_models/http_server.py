"""The HTTP server: accepts all APIs, records requests, and answers as the scenarios define."""

from __future__ import annotations

import json
import re
import threading
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

from agentq.testing.fake_models import anthropic, gemini, openai_chat, openai_responses
from agentq.testing.fake_models.messages import HttpReply
from agentq.testing.fake_models.scenarios import ErrorAnswer, ModelConversation, NoAnswer, TextAnswer, choose_answer

REQUESTS_KEPT = 1000
KEY_HEADERS = ("x-api-key", "authorization", "x-goog-api-key")
MODELS = ("stub-model",)


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One request."""

    path: str
    model: str
    key: str
    """Its API key."""
    prompt: str
    """The newest prompt of the conversation."""
    prompts: int
    done: int
    """Tools that were used since the newest prompt."""
    scenario: str
    tools: tuple[str, ...]


class FakeModelServer:
    """A model service on a loopback port: `with FakeModelServer() as models:`."""

    def __init__(self, port: int = 0, record: Path | None = None) -> None:
        self.requests: deque[ModelRequest] = deque(maxlen=REQUESTS_KEPT)
        """The requests, the newest last; also in the file `record`, one line of JSON each."""
        self.stopping = threading.Event()
        self._record = record
        self._refused: Counter[tuple[str, bool]] = Counter()
        self._number = 0
        self._lock = threading.Lock()
        self._server = _HttpServer(("127.0.0.1", port), self)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    @property
    def url(self) -> str:
        """Its address; most clients of OpenAI want `/v1` after it."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def start(self) -> FakeModelServer:
        """Start listening, in a thread."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """Close the port; pending requests get no answer."""
        self.stopping.set()
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def __enter__(self) -> FakeModelServer:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.stop()

    # ---- for the threads that answer

    def record(self, request: ModelRequest) -> int:
        """Record a request; returns its number."""
        with self._lock:
            self.requests.append(request)
            self._number += 1
            if self._record:
                with self._record.open("a") as file:
                    file.write(json.dumps(asdict(request)) + "\n")
            return self._number

    def count_refusals(self, conversation: ModelConversation, *, one_more: bool = False) -> int:
        """How often a prompt was refused. Requests of the agent itself, such as for a title, are counted separately:
        they have no tools."""
        with self._lock:
            self._refused[conversation.prompt, bool(conversation.tools)] += one_more
            return self._refused[conversation.prompt, bool(conversation.tools)]


class _HttpServer(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], models: FakeModelServer) -> None:
        self.models = models
        super().__init__(address, _RequestHandler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Agents are killed in the middle of an answer; that is expected."""


def _find_dialect(path: str) -> ModuleType | None:
    """The API of a path."""
    plain = path.partition("?")[0]
    if plain.endswith("/messages"):
        return anthropic
    if plain.endswith("/responses"):
        return openai_responses
    if plain.endswith("/chat/completions"):
        return openai_chat
    return gemini if plain.endswith("enerateContent") else None


class _RequestHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _HttpServer

    def do_HEAD(self) -> None:
        self._reply(HttpReply(200, {}))

    def do_GET(self) -> None:
        if self.path.partition("?")[0].endswith("/models"):
            listed = [{"id": name, "object": "model", "type": "model", "display_name": name} for name in MODELS]
            self._reply(HttpReply(200, {"object": "list", "data": listed, "has_more": False}))
        else:
            self._reply(HttpReply(404, {"error": {"type": "not_found_error", "message": f"There is no {self.path}."}}))

    def do_POST(self) -> None:
        text = self.rfile.read(int(self.headers.get("content-length") or 0))
        if self.path.partition("?")[0].endswith(("/count_tokens", ":countTokens")):
            self._reply(HttpReply(200, {"input_tokens": len(text) // 4, "totalTokens": len(text) // 4}))
        elif (dialect := _find_dialect(self.path)) is None:
            self.do_GET()
        else:
            try:
                body = json.loads(text)
            except ValueError:
                self._reply(HttpReply(400, {"error": {"type": "invalid_request_error", "message": "That is no JSON."}}))
            else:
                self._answer(dialect, body)

    def _answer(self, dialect: ModuleType, body: dict[str, Any]) -> None:
        models = self.server.models
        if in_path := re.search(r"/models/([^:/]+):", self.path):
            body.setdefault("model", in_path[1])
        conversation = dialect.parse_conversation(body)
        conversation = replace(conversation, refused=models.count_refusals(conversation))
        number = models.record(self._describe_request(conversation))
        found = choose_answer(conversation)
        if isinstance(found, ErrorAnswer):
            models.count_refusals(conversation, one_more=True)
            self._reply(dialect.build_error(found))
        elif isinstance(found, NoAnswer):
            models.stopping.wait()
            self.close_connection = True
        elif body.get("stream") or "stream" in self.path:
            self._stream(
                dialect.stream_answer(found, conversation, number), broken=isinstance(found, TextAnswer) and found.cut
            )
        else:
            self._reply(HttpReply(200, dialect.build_answer(found, conversation, number)))

    def _describe_request(self, conversation: ModelConversation) -> ModelRequest:
        key = next((self.headers[name] for name in KEY_HEADERS if self.headers[name]), "").removeprefix("Bearer ")
        count = len(conversation.prompts)
        return ModelRequest(
            self.path,
            conversation.model,
            key,
            conversation.prompt,
            count,
            conversation.done,
            conversation.scenario[0],
            conversation.tools,
        )

    def _stream(self, events: Iterator[tuple[float, bytes]], *, broken: bool) -> None:
        """Send chunks; a broken stream has no end."""
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for pause_s, piece in events:
            if pause_s and self.server.models.stopping.wait(pause_s):
                broken = True
                break
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        if broken:
            self.close_connection = True
        else:
            self.wfile.write(b"0\r\n\r\n")

    def _reply(self, reply: HttpReply) -> None:
        body = json.dumps(reply.body).encode()
        self.send_response(reply.status)
        for name, value in {**reply.headers, "content-type": "application/json"}.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_words: object) -> None:
        """No log; requests are in `FakeModelServer.requests`."""
