"""The kinds of server that everything must work on: the Valkey that we bring, and the Redis of the distribution."""

from __future__ import annotations

import os

import pytest
from servers import redis_binary, valkey_binary


def required(program: str | None, name: str) -> str:
    """A program that a test needs; without it the test is skipped, but never in CI."""
    if program is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"{name} is not installed, so this is NOT TESTED")
    return program


def binary(flavour: str) -> str:
    """The program of a flavour."""
    return valkey_binary() if flavour == "valkey" else required(redis_binary(), "redis-server")


FLAVOURS = ("valkey", "redis")
