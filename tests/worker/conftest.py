"""Some tests of this folder run in a process of their own."""

from __future__ import annotations

from solitude import FILES, is_alone

collect_ignore = ["test_alone.py"] if is_alone() else list(FILES)
