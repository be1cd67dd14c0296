"""The loopback device of a network namespace that is new: it is there, and down.

In such a namespace, as `unshare --net` makes it, a program reaches what listens in there and nothing else in the world.
"""

from __future__ import annotations

import fcntl
import socket
import struct

SIOCSIFFLAGS = 0x8914
IFF_UP = 0x1


def bring_up() -> None:
    """Bring it up; whoever made the namespace may."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh", b"lo", IFF_UP))
