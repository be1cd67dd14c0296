"""One child process, as its worker sees it: started, sent calls, heard, interrupted and ended. Its tasks:

1. Start a fresh interpreter that marks itself as ours, dies with us, and keeps to its limits.
2. Number the calls that are sent, and know of each whether it has begun.
3. Judge how many may wait in it, by how fast it answers.
4. Take back what has not begun, without its help; see `shared_memory`.

It is used by one thread at a time: `engine` sees to that.
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
"""More would be memory that is mapped anew for each read."""
SETTLE_MS = 2
"""After so long both sides see what the other has written to the board."""
LEAVE_TIMEOUT_MS = 5_000
"""How long it may take to end by itself."""


class ChildProcess:
    """See above."""

    def __init__(self, making: ChildConfig, own: OwnChildConfig | None = None) -> None:
        self.making, self.own = making, own
        self.calls: dict[CallKey, int] = {}
        """What was sent and has not been answered, in order, each with its number."""
        self.asynchronous: set[CallKey] = set()
        self.started: set[CallKey] = set()
        """The server knows, or is being told, that these have begun."""
        self.next = 1
        self.sent = 0
        self.window = 1.0
        self.each_ms = 0.0
        """How long a call takes, as a moving average."""
        self.withdrawing = self.retiring = self.left = self.killed = self.hung_up = False
        self.settled_ms = self.leave_ms = 0
        """When it is known what it will not begin, and by when it should have ended."""
        self.seen, self.seen_ms, self.looked_ms = 0, monotonic_ms(), 0
        """The call that it was at, since when that has been so, and when its calls were looked at last."""
        self.suspects: set[CallKey] = set()
        """What had begun by then."""
        self._since_ms = 0
        self.unsent = bytearray()
        """What the socket had no room for."""
        self._frames = protocol.FrameDecoder(protocol.RECORD_HEADER)
        self._start()

    # ---- its life

    def _start(self) -> None:
        self.cookie = f"{self.making.namespace}/functions/{new_nonce()}"
        keeper = process_tree.get_process_name(os.getpid())
        caps = dict(self.own.caps) if self.own else {}
        memory_bytes = caps.pop("memory_bytes", None) or self.making.memory_bytes
        groups = self.making.cgroups if memory_bytes else None
        self.leaf = groups.leaf(self.cookie, keeper, memory_bytes) if groups else None
        bounded = self.leaf is not None and groups is not None and groups.memory
        if memory_bytes and not bounded:
            caps["memory_bytes"] = memory_bytes
        ours, theirs = socket.socketpair()
        board = create_memory()
        errors, write = os.pipe()
        url = (
            _open_text_pipe(self.making.url)
            if (self.own.knows_server if self.own else self.making.shares_server)
            else -1
        )
        told = {
            "socket": theirs.fileno(),
            "board": board,
            "keeper": os.getpid(),
            "async_calls": self.making.async_calls,
            "rss_bytes": self.making.rss_bytes,
            "caps": caps,
            "functions": self.making.functions,
            "url": url,
        }
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "agentq.worker.functions.child_runtime.main", json.dumps(told)],
                stdin=subprocess.DEVNULL,
                stdout=write,
                stderr=write,
                env={
                    **self.making.variables(self.own),
                    process_tree.COOKIE_VARIABLE: self.cookie,
                    process_tree.STARTER_VARIABLE: keeper,
                },
                cwd=self.own.cwd if self.own else None,
                start_new_session=True,
                pass_fds=(theirs.fileno(), board, *([url] if url >= 0 else [])),
            )
            self.board = SharedMemory(board)
        except BaseException:
            ours.close()
            os.close(errors)
            if self.leaf is not None:
                self.leaf.remove()
            raise
        finally:
            theirs.close()
            for end in (board, write, *([url] if url >= 0 else [])):
                os.close(end)
        self.pid, self.socket = self.process.pid, ours
        ours.setblocking(False)
        self.errors = ChildStderr(errors)
        self.kills_before = procfs.count_oom_kills()
        self._be_known()

    def _be_known(self) -> None:
        """It is the root of a tree, so that nobody takes it for an orphan."""
        root = procfs.read_stat(self.pid) or procfs.ProcessStat(self.pid, os.getpid(), self.pid, self.pid, 0, True)
        root_processes[self.pid] = root.began
        self.tree = process_tree.ProcessTree(self.cookie, root, monotonic_ms(), self.leaf)
        if self.leaf is not None:
            self.leaf.add(self.pid)
        try:
            self.end = pidfd.open_pidfd(self.pid)
        except OSError:
            self.end = -1

    def kill(self) -> None:
        """With all that is in its group."""
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
        self.board.close()
        if self.end >= 0:
            os.close(self.end)

    # ---- what it is told

    @property
    def idle(self) -> bool:
        return not self.calls

    @property
    def proven(self) -> bool:
        """It has begun something, so it can."""
        return bool(self.board.numbers[CURRENT_CALL])

    def room(self) -> int:
        """How many more calls it may be sent now."""
        if self.withdrawing or self.retiring:
            return 0
        room = self.making.async_calls - len(self.calls) if self.asynchronous else int(self.window) - len(self.calls)
        most = 1 if self.own is not None else self.making.calls_most
        return max(0, room if most is None else min(room, most - self.sent))

    def send(self, claims: Sequence[Claim]) -> None:
        if not self.calls:
            self._since_ms = self.seen_ms = monotonic_ms()
        first = self.next
        self.next += len(claims)
        self.sent += len(claims)
        self.calls.update(zip([claim[:2] for claim in claims], count(first)))
        self._write(protocol.encode_frame(protocol.CALLS, str(first), *chain.from_iterable(claims)))

    def tell(self, *lines: str) -> None:
        self._write(protocol.encode_frame(*lines))

    def leave(self, now: int) -> None:
        """It has nothing to do any more."""
        self.left, self.leave_ms = True, now + LEAVE_TIMEOUT_MS
        self.tell(protocol.LEAVE)

    def strike(self, key: CallKey, why: int) -> None:
        """Raise an exception in a call that has begun."""
        number = self.calls[key]
        self.board.numbers[INTERRUPT_REASON] = why
        self.board.numbers[INTERRUPTED_CALL] = number
        self.tell(protocol.STOP, str(number), str(why))
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
        except OSError:  # it has died, which is about to be noticed
            return
        if sent < len(frame):
            self.unsent += frame[sent:]

    def write_on(self) -> None:
        """It can take more."""
        with suppress(OSError):
            sent = self.socket.send(self.unsent[:READ_BYTES])
            del self.unsent[:sent]

    @property
    def awaits(self) -> int:
        """What to poll its socket for."""
        return select.POLLIN | (select.POLLOUT if self.unsent else 0)

    # ---- what it says

    def heard(self) -> tuple[list[str], bool]:
        """The lines of what it has said since the last time, and whether it is still there.

        First the socket, then the ring up to where it was written before that: so a record never overtakes another.
        """
        head, pieces, there = self.board.settled_head(), list[bytes](), True
        try:
            while piece := self.socket.recv(READ_BYTES):
                for (upto, _), body in self._frames.fed(piece):
                    pieces += (self.board.take(upto), body)
                if len(piece) < READ_BYTES:
                    break
            there = bool(piece)
        except BlockingIOError:
            pass  # that was all
        except OSError:
            there = False
        pieces.append(self.board.take(head))
        lines = _split_last_lines(pieces)
        if len(lines) % protocol.RECORD_LINES:
            raise SharedMemoryCorrupt()
        return lines, there

    def last_words(self) -> list[str]:
        """What it has left in the ring. It is dead."""
        return _split_last_lines(
            [self.board.take(self.board.settled_head()), self.board.take(self.board.settled_head())]
        )

    def answered(self, number: int) -> None:
        """So many calls have ended: how many may wait is judged anew, and at most doubles."""
        now = monotonic_ms()
        if not self.each_ms and number == self.sent:
            # What was sent first has waited for the start of the child.
            self._since_ms, self.window = now, 2.0
            return
        each = max(now - self._since_ms, 0.02) / number
        self.each_ms = each if not self.each_ms else 0.7 * self.each_ms + 0.3 * each
        self._since_ms = now
        self.window = max(1.0, min(2 * self.window, QUEUED_WORK_MS / self.each_ms, QUEUED_CALLS_MAX))

    # ---- what has begun, and what has not

    def begun(self) -> list[CallKey]:
        current = self.board.numbers[CURRENT_CALL]
        return [key for key, number in self.calls.items() if number <= current]

    def has_begun(self, key: CallKey) -> bool:
        return self.calls[key] <= self.board.numbers[CURRENT_CALL]

    def waiting(self) -> bool:
        """Whether something has not begun."""
        return bool(self.calls) and self.calls[next(reversed(self.calls))] > self.board.numbers[CURRENT_CALL]

    def withdraw(self) -> None:
        """Begin to take back what has not begun; `withdrawn` says, a moment later, what that is."""
        numbers = self.board.numbers
        numbers[WITHDRAWN_TO] = self.next
        numbers[WITHDRAWN_FROM] = numbers[CURRENT_CALL] + 1
        self.withdrawing, self.settled_ms = True, monotonic_ms() + SETTLE_MS

    def withdrawn(self) -> list[CallKey]:
        """What it will never begin. It may refuse one more, which it was about to begin."""
        current = self.board.numbers[CURRENT_CALL]
        keys = [key for key, number in self.calls.items() if number > current]
        for key in keys:
            del self.calls[key]
        self.withdrawing = False
        self.window = 1.0
        return keys


def _open_text_pipe(text: str) -> int:
    """A pipe that holds a text, which no list of processes shows."""
    read, write = os.pipe()
    with os.fdopen(write, "w", encoding="utf-8") as pipe:
        pipe.write(text)
    return read


class ChildStderr:
    """What a child writes to its stdout and stderr itself, not through Python: passed on to ours, the end kept."""

    def __init__(self, end: int) -> None:
        self._end = end
        self._last = b""
        self.ended = threading.Event()
        threading.Thread(target=self._pass_on, name="agentq-child-errors", daemon=True).start()

    def tail(self) -> str:
        return self._last.decode(errors="replace")

    def _pass_on(self) -> None:
        with open(self._end, "rb", buffering=0) as errors:
            while piece := errors.read(READ_BYTES):
                self._last = (self._last + piece)[-TAIL_CHARACTERS:]
                with suppress(OSError):
                    os.write(2, piece)
        self.ended.set()


def _split_last_lines(pieces: Iterable[bytes]) -> list[str]:
    text = b"".join(pieces).decode(errors="replace")
    return text[:-1].split("\n") if text else []
