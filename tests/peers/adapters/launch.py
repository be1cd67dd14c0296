"""Starts a role of an adapter: python launch.py MODULE worker|producer, in the environment of the peer."""

import importlib
import sys

import producing


def main():
    name, role = sys.argv[1:]
    adapter = importlib.import_module(name)
    if role == "worker":
        producing.quiet_logging()
        adapter.worker()
    else:
        producing.run_producer(adapter.make_producer())


if __name__ == "__main__":
    main()
