"""`python -m agentq.testing.fake_models [--port N] [--record FILE] [--sealed]`: runs the service until a signal."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from agentq.testing.fake_models import FakeModelServer
from agentq.testing.fake_models.network_namespace import isolate_network

PORT = 8399


def main() -> int:
    """Serve until a signal."""
    parser = argparse.ArgumentParser(prog="python -m agentq.testing.fake_models", description=__doc__)
    parser.add_argument("--port", type=int, default=PORT, help=f"where to listen on 127.0.0.1; {PORT} by default")
    parser.add_argument("--record", type=Path, help="write every request to this file, a line of JSON each")
    parser.add_argument("--sealed", action="store_true", help="first make new namespaces fit to live in")
    chosen = parser.parse_args()
    if chosen.sealed:
        isolate_network()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: models.stopping.set())
    with FakeModelServer(chosen.port, chosen.record) as models:
        sys.stdout.write(f"The stub models listen at {models.url}\n")
        sys.stdout.flush()
        models.stopping.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
