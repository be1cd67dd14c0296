"""Makes new namespaces fit to live in: a loopback that is up, and a name server that knows no name.

In such a place, as `unshare --net --mount` makes it, a program reaches what listens in there and nothing else in the
world. Names must fail at once there: Codex looks up four of them, and waits five seconds for a resolver that is away.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import subprocess
import tempfile
import threading
from pathlib import Path

SIOCSIFFLAGS = 0x8914
IFF_UP = 0x1
RESOLV_CONF = Path("/etc/resolv.conf")
NXDOMAIN_FLAGS = b"\x81\x83"


def isolate_network() -> None:
    """Do it, in namespaces that this process was started in; those of its parent are left as they are."""
    bring_up_loopback()
    if _is_own_namespace("mnt") and RESOLV_CONF.exists():
        _start_name_server()


def bring_up_loopback() -> None:
    """The loopback of a new namespace is there, and down."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh", b"lo", IFF_UP))


def _is_own_namespace(kind: str) -> bool:
    try:
        return os.readlink(f"/proc/self/ns/{kind}") != os.readlink(f"/proc/{os.getppid()}/ns/{kind}")
    except PermissionError:
        # It is in a user namespace of its own, and sees nothing of its parent's.
        return True


def _start_name_server() -> None:
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as file:
        file.write("nameserver 127.0.0.1\n")
        file.flush()
        Path(file.name).chmod(0o644)
        subprocess.run(["mount", "--make-rprivate", "/"], check=True)
        subprocess.run(["mount", "--bind", file.name, str(RESOLV_CONF)], check=True)
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("127.0.0.1", 53))
    threading.Thread(target=_answer_nxdomain, args=(server,), daemon=True).start()


def _answer_nxdomain(server: socket.socket) -> None:
    while True:
        query, address = server.recvfrom(4096)
        server.sendto(query[:2] + NXDOMAIN_FLAGS + query[4:6] + bytes(6) + query[12:], address)
