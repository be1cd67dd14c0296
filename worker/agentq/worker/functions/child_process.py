"""One child process, from the worker's side. Its tasks:

1. Start a fresh interpreter that carries the worker's mark, dies with the worker, and keeps to its limits.
2. Number the calls that are sent, and know of each whether it has begun.
3. Limit how many calls may wait in it, by how fast it answers.
4. Withdraw calls that have not begun, without the child's help; see `shared_memory`.

Not thread-safe; the engine holds the lock.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import chain, count

from agentq.coordinator.bounds import TAIL_CHARACTERS
from agentq.coordinator.clock import monotonic_ms
from agentq.coordinator.model.ids import new_nonce
from agentq.coordinator.runs.verbs import Claim
from agentq.worker.functions import protocol
from agentq.worker.functions.child_config import ChildConfig, OwnChildConfig
from agentq.worker.functions.shared_memory import (
    CURRENT_CALL,
    INTERRUPT_REASON,
    INTERRUPTED_CALL,
    WITHDRAWN_FROM,
    WITHDRAWN_TO,
    SharedMemory,
    SharedMemoryCorrupt,
    create_memory,
)
from agentq.worker.process import pidfd, process_tree, procfs
from agentq.worker.process.subreaper import root_processes

CallKey = tuple[str, str]
"""A run and the fence of its attempt."""

QUEUED_WORK_MS = 30
"""How much work may wait in a child,"""
QUEUED_CALLS_MAX = 500
"""and how many calls."""
READ_BYTES = 64 << 10
"""A larger buffer would be mapped anew for each read."""
SETTLE_MS = 2
"""After this time both sides see what the other wrote to the shared memory."""
LEAVE_TIMEOUT_MS = 5_000
"""How long a child may take to end by itself."""


class ChildProcess:
    """One child: its calls, its connection and its process."""

    def __init__(self, config: ChildConfig, own: OwnChildConfig | None = None) -> None:
        self.config, self.own = config, own
        self.calls: dict[CallKey, int] = {}
        """Calls that were sent and not answered, in order, each with its number."""
        self.asynchronous: set[CallKey] = set()
        self.started: set[CallKey] = set()
        """Calls reported to the server as started."""
        self.next_number = 1
        self.sent = 0
        self.window = 1.0
        self.call_ms = 0.0
        """Duration of a call, as a moving average."""
        self.withdrawing = self.retiring = self.is_leaving = self.killed = self.hung_up = False
        self.withdrawn_at_ms = self.leave_ms = 0
        """When the withdrawn calls are known, and by when it should have ended."""
        self.current, self.current_since_ms, self.checked_ms = 0, monotonic_ms(), 0
        """Its current call, since when, and when its calls were last checked."""
        self.begun_before: set[CallKey] = set()
        """The calls that had begun at the last check."""
        self._answered_ms = 0
        self.unsent = bytearray()
        """Bytes that the socket had no room for."""
        self._frames = protocol.FrameDecoder(protocol.RECORD_HEADER)
        self._start()

    # ---- its life

    def _start(self) -> None:
        self.cookie = f"{self.config.namespace}/functions/{new_nonce()}"
        starter = process_tree.get_process_name(os.getpid())
        caps = dict(self.own.caps) if self.own else {}
        memory_bytes = caps.pop("memory_bytes", None) or self.config.memory_bytes
        cgroups = self.config.cgroups if memory_bytes else None
        self.leaf = cgroups.leaf(self.cookie, starter, memory_bytes) if cgroups else None
        bounded = self.leaf is not None and cgroups is not None and cgroups.memory
        if memory_bytes and not bounded:
            caps["memory_bytes"] = memory_bytes
        ours, theirs = socket.socketpair()
        memory = create_memory()
        errors, write = os.pipe()
        url = (
            _open_text_pipe(self.config.url)
            if (self.own.knows_server if self.own else self.config.shares_server)
            else -1
        )
        launch = {
            "socket": theirs.fileno(),
            "board": memory,
            "parent_pid": os.getpid(),
            "async_calls": self.config.async_calls,
            "rss_bytes": self.config.rss_bytes,
            "caps": caps,
            "functions": self.config.functions,
            "url": url,
        }
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "agentq.worker.functions.child_runtime.main", json.dumps(launch)],
                stdin=subprocess.DEVNULL,
                stdout=write,
                stderr=write,
                env={
                    **self.config.variables(self.own),
                    process_tree.COOKIE_VARIABLE: self.cookie,
                    process_tree.STARTER_VARIABLE: starter,
                },
                cwd=self.own.cwd if self.own else None,
                start_new_session=True,
                pass_fds=(theirs.fileno(), memory, *([url] if url >= 0 else [])),
            )
            self.memory = SharedMemory(memory)
        except BaseException:
            ours.close()
            os.close(errors)
            if self.leaf is not None:
                self.leaf.remove()
            raise
        finally:
            theirs.close()
            for end in (memory, write, *([url] if url >= 0 else [])):
                os.close(end)
        self.pid, self.socket = self.process.pid, ours
        ours.setblocking(False)
        self.errors = ChildStderr(errors)
        self.kills_before = procfs.count_oom_kills()
        self._register_root()

    def _register_root(self) -> None:
        """Register it as the root of a process tree, so that it is not reaped as an orphan."""
        root = procfs.read_stat(self.pid) or procfs.ProcessStat(self.pid, os.getpid(), self.pid, self.pid, 0, True)
        root_processes[self.pid] = root.began
        self.tree = process_tree.ProcessTree(self.cookie, root, monotonic_ms(), self.leaf)
        if self.leaf is not None:
            self.leaf.add(self.pid)
        try:
            self.pidfd = pidfd.open_pidfd(self.pid)
        except OSError:
            self.pidfd = -1

    def kill(self) -> None:
        """Kill it and its process group."""
        self.killed = True
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def reap(self) -> int:
        """Its exit status, once it has ended; negative for a signal."""
        status = self.process.wait()
        self.errors.ended.wait(0.2)
        root_processes.pop(self.pid, None)
        return status

    def close(self) -> None:
        self.socket.close()
        self.memory.close()
        if self.pidfd >= 0:
            os.close(self.pidfd)

    # ---- to the child

    @property
    def idle(self) -> bool:
        return not self.calls

    @property
    def proven(self) -> bool:
        """Whether it has begun a call, and so works."""
        return bool(self.memory.numbers[CURRENT_CALL])

    def room(self) -> int:
        """How many more calls it may be sent now."""
        if self.withdrawing or self.retiring:
            return 0
        room = self.config.async_calls - len(self.calls) if self.asynchronous else int(self.window) - len(self.calls)
        calls_max = 1 if self.own is not None else self.config.calls_max
        return max(0, room if calls_max is None else min(room, calls_max - self.sent))

    def send(self, claims: Sequence[Claim]) -> None:
        if not self.calls:
            self._answered_ms = self.current_since_ms = monotonic_ms()
        first = self.next_number
        self.next_number += len(claims)
        self.sent += len(claims)
        self.calls.update(zip([claim[:2] for claim in claims], count(first)))
        self._write(protocol.encode_frame(protocol.CALLS, str(first), *chain.from_iterable(claims)))

    def send_lines(self, *lines: str) -> None:
        self._write(protocol.encode_frame(*lines))

    def leave(self, now: int) -> None:
        """Tell an idle child to end."""
        self.is_leaving, self.leave_ms = True, now + LEAVE_TIMEOUT_MS
        self.send_lines(protocol.LEAVE)

    def interrupt(self, key: CallKey, why: int) -> None:
        """Raise an exception in a call that has begun."""
        number = self.calls[key]
        self.memory.numbers[INTERRUPT_REASON] = why
        self.memory.numbers[INTERRUPTED_CALL] = number
        self.send_lines(protocol.STOP, str(number), str(why))
        with suppress(ProcessLookupError):
            os.kill(self.pid, protocol.INTERRUPT_SIGNAL)

    def _write(self, frame: bytes) -> None:
        if self.unsent:
            self.unsent += frame
            return
        try:
            sent = self.socket.send(frame)
        except BlockingIOError:
            sent = 0
        except OSError:  # the child has died; the watcher notices
            return
        if sent < len(frame):
            self.unsent += frame[sent:]

    def write_unsent(self) -> None:
        """The socket has room again."""
        with suppress(OSError):
            sent = self.socket.send(self.unsent[:READ_BYTES])
            del self.unsent[:sent]

    @property
    def poll_events(self) -> int:
        """The events to poll its socket for."""
        return select.POLLIN | (select.POLLOUT if self.unsent else 0)

    # ---- from the child

    def read(self) -> tuple[list[str], bool]:
        """The lines it has sent since the last read, and whether its connection is open.

        First the socket, then the ring up to where it was written before that: so no record overtakes another.
        """
        head, pieces, open_ = self.memory.settled_head(), list[bytes](), True
        try:
            while piece := self.socket.recv(READ_BYTES):
                for (upto, _), body in self._frames.decode(piece):
                    pieces += (self.memory.take(upto), body)
                if len(piece) < READ_BYTES:
                    break
            open_ = bool(piece)
        except BlockingIOError:
            pass  # that was all
        except OSError:
            open_ = False
        pieces.append(self.memory.take(head))
        lines = _split_last_lines(pieces)
        if len(lines) % protocol.RECORD_LINES:
            raise SharedMemoryCorrupt()
        return lines, open_

    def read_rest(self) -> list[str]:
        """What a dead child left in the ring."""
        return _split_last_lines(
            [self.memory.take(self.memory.settled_head()), self.memory.take(self.memory.settled_head())]
        )

    def adjust_window(self, number: int) -> None:
        """So many calls have ended: set how many may wait, at most twice as many as before."""
        now = monotonic_ms()
        if not self.call_ms and number == self.sent:
            # The first calls have waited for the child to start.
            self._answered_ms, self.window = now, 2.0
            return
        call_ms = max(now - self._answered_ms, 0.02) / number
        self.call_ms = call_ms if not self.call_ms else 0.7 * self.call_ms + 0.3 * call_ms
        self._answered_ms = now
        self.window = max(1.0, min(2 * self.window, QUEUED_WORK_MS / self.call_ms, QUEUED_CALLS_MAX))

    # ---- what has begun, and what has not

    def begun(self) -> list[CallKey]:
        current = self.memory.numbers[CURRENT_CALL]
        return [key for key, number in self.calls.items() if number <= current]

    def has_begun(self, key: CallKey) -> bool:
        return self.calls[key] <= self.memory.numbers[CURRENT_CALL]

    def has_waiting(self) -> bool:
        """Whether a call has not begun."""
        return bool(self.calls) and self.calls[next(reversed(self.calls))] > self.memory.numbers[CURRENT_CALL]

    def withdraw(self) -> None:
        """Start to withdraw calls that have not begun; a moment later `take_withdrawn` returns them."""
        numbers = self.memory.numbers
        numbers[WITHDRAWN_TO] = self.next_number
        numbers[WITHDRAWN_FROM] = numbers[CURRENT_CALL] + 1
        self.withdrawing, self.withdrawn_at_ms = True, monotonic_ms() + SETTLE_MS

    def take_withdrawn(self) -> list[CallKey]:
        """The calls it will never begin. It may refuse one more, which it was about to begin."""
        current = self.memory.numbers[CURRENT_CALL]
        keys = [key for key, number in self.calls.items() if number > current]
        for key in keys:
            del self.calls[key]
        self.withdrawing = False
        self.window = 1.0
        return keys


def _open_text_pipe(text: str) -> int:
    """A pipe that holds a text, so that no process list shows it."""
    read, write = os.pipe()
    with os.fdopen(write, "w", encoding="utf-8") as pipe:
        pipe.write(text)
    return read


class ChildStderr:
    """Output that a child writes past Python to stdout and stderr: forwarded to the worker's stderr, the end kept."""

    def __init__(self, end: int) -> None:
        self._end = end
        self._tail = b""
        self.ended = threading.Event()
        threading.Thread(target=self._forward, name="agentq-child-errors", daemon=True).start()

    def tail(self) -> str:
        return self._tail.decode(errors="replace")

    def _forward(self) -> None:
        with open(self._end, "rb", buffering=0) as errors:
            while piece := errors.read(READ_BYTES):
                self._tail = (self._tail + piece)[-TAIL_CHARACTERS:]
                with suppress(OSError):
                    os.write(2, piece)
        self.ended.set()


def _split_last_lines(pieces: Iterable[bytes]) -> list[str]:
    text = b"".join(pieces).decode(errors="replace")
    return text[:-1].split("\n") if text else []
