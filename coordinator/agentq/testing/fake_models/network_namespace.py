"""Prepares new network and mount namespaces: brings up the loopback, and starts a name server without names.

In such namespaces, made by `unshare --net --mount`, a program reaches only local listeners. Name lookups must fail at
once: Codex makes four, and waits five seconds for a resolver that does not answer.
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
    """Prepare the namespaces that this process was started in; those of its parent are not touched."""
    bring_up_loopback()
    if _is_own_namespace("mnt") and RESOLV_CONF.exists():
        _start_name_server()


def bring_up_loopback() -> None:
    """Bring up the loopback, which is down in a new namespace."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh", b"lo", IFF_UP))


def _is_own_namespace(kind: str) -> bool:
    try:
        return os.readlink(f"/proc/self/ns/{kind}") != os.readlink(f"/proc/{os.getppid()}/ns/{kind}")
    except PermissionError:
        # The process is in a user namespace of its own, and cannot see its parent's.
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
