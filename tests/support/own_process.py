"""Which tests need a process of their own: those of processes and their trees; see tests/worker/test_own_process.py.

They make the process that runs them the one that gets orphans, and look at all its children. Among other tests there
are servers and workers that are children of the same process, and orphans that are somebody else's.
"""

from __future__ import annotations

import ctypes
import os

from agentq.worker.process import subreaper

FILES = (
    "test_resource_caps.py",
    "test_cgroups.py",
    "test_missing_system_features.py",
    "test_process.py",
    "test_sweep.py",
    "test_tree.py",
)
ALONE = "AGENTQ_TESTED_ALONE"
"""Set in that process."""


def is_alone() -> bool:
    return bool(os.environ.get(ALONE))


def adopt_no_more() -> None:
    """What a test ran here may have made this process the one that gets orphans; those of the next test are init's."""
    if subreaper._become_subreaper.cache_info().currsize:
        subreaper._become_subreaper.cache_clear()
        ctypes.CDLL(None).prctl(subreaper._PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
