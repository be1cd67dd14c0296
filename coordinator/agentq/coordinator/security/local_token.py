"""The token of this machine: created at the first start of a server on loopback, readable by its user alone.

The commands, the SDK and workers of that user show it by themselves to a server on loopback, and to no other. It may
do everything, and so may everybody who can read its file.
"""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from agentq.coordinator.errors import Invalid, NotAllowed
from agentq.coordinator.storage.url import is_loopback

FILE_NAME = "token"
SOCKET_FOLDER = "http"
"""The folder of the sockets on which servers listen beside their ports: `http/8765`. It is closed to other users."""
PRIVATE_MODE = 0o700
LISTEN_STATE = "0A"


def ensure_local_token(home: Path) -> str:
    """The token, which is made first if there is none. Of two that make it at once, both get the same."""
    found = read_local_token(home)
    if found:
        return found
    from agentq.coordinator.security.tokens import make_token

    text, beside = make_token("client")[1], home / f".{FILE_NAME}-{secrets.token_hex(4)}"
    try:
        home.mkdir(mode=PRIVATE_MODE, parents=True, exist_ok=True)
        with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(f"{text}\n")
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(beside, home / FILE_NAME)
        beside.unlink()
    except OSError as error:
        raise NotAllowed(
            f"The token of this machine cannot be kept in {home}: {error.strerror or error}; set AGENTQ_HOME to a "
            "folder of yours."
        ) from error
    return read_local_token(home)


def read_local_token(home: Path) -> str:
    """The token; empty if there is none yet. Refuses a file that another user could have read or written."""
    path = home / FILE_NAME
    try:
        with path.open(encoding="utf-8") as file:
            about = os.fstat(file.fileno())
            text = file.read(1000).strip()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"The token in {path} cannot be read: {error}.") from error
    if about.st_uid != os.geteuid() or stat.S_IMODE(about.st_mode) & 0o077 or not text:
        raise Invalid(f"{path} has to be a token that only you can read; delete it, and start the server again.")
    return text


def token_for_address(home: Path, host: str, port: int) -> str:
    """The token, if this is an address on loopback where no other user listens, who would have it then."""
    return read_local_token(home) if is_loopback(host) and _find_listener_users(port) <= {os.geteuid(), 0} else ""


def _find_listener_users(port: int) -> set[int]:
    """The users who listen at a port, as far as the system tells."""
    found = set()
    for path in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        with suppress(OSError):
            rows = [line.split() for line in path.read_text(encoding="ascii").splitlines()[1:]]
            found |= {int(row[7]) for row in rows if row[3] == LISTEN_STATE and row[1].endswith(f":{port:04X}")}
    return found


def socket_path(home: Path, port: int) -> Path:
    """Where a server at this port listens as well."""
    return home / SOCKET_FOLDER / str(port)
