"""The command line in this process, on a namespace of its own; see tests/cli."""

from __future__ import annotations

from cli.conftest import background as background
from cli.conftest import cli as cli
from cli.conftest import here as here
from cli.conftest import real as real
