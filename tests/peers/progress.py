"""What a run of the comparison says while it is at work: one line on stderr for each thing done."""

from __future__ import annotations

import sys
import time


def log(*words: object) -> None:
    print(time.strftime("%H:%M:%S"), *words, file=sys.stderr, flush=True)
