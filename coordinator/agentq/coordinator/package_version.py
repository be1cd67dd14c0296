"""Which release of agentq is installed."""

from __future__ import annotations

import os
import re
import sys

DISTRIBUTION_NAME = "agentqueue"
"""The name of the package; on the index, `agentq` is another project."""


def installed_version() -> str:
    """The version, as its installer recorded it: in the name of a folder, since importing `metadata` takes long."""
    pattern = re.compile(rf"{DISTRIBUTION_NAME}-([^-]+)\.dist-info")
    for folder in filter(os.path.isdir, sys.path):
        for name in os.listdir(folder):
            if found := pattern.fullmatch(name):
                return found[1]
    from importlib import metadata

    return metadata.version(DISTRIBUTION_NAME)
