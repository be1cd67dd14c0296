"""Syntax trees of Python source, parsed once per process."""

from __future__ import annotations

import ast
import gc
from functools import cache


@cache
def parse_python(source: str) -> ast.Module:
    """Parse with the garbage collector off. Callers share the tree and must not change it.

    CPython before 3.11.8 counts the depth of the tree that it is building in one place for the whole interpreter
    (gh-106905). A collection in the middle runs Python code: callbacks and finalizers. If that code, or a thread that
    runs meanwhile, parses too, the count is wrong and ast.parse raises "SystemError: AST constructor recursion depth
    mismatch". Nothing but the collector runs Python code while a tree is built.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(source)
    finally:
        if was_enabled:
            gc.enable()
