"""`python -m agentq.testing.fake_agent [--as claude|codex|acp] FLAGS…`: the prompt is read from stdin."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module

LANGUAGES = ("claude", "codex", "acp")


def main(argv: list[str]) -> int:
    """Run the agent of the chosen protocol with the remaining arguments."""
    language = "claude"
    if argv[:1] == ["--as"]:
        language, argv = (argv[1] if len(argv) > 1 else ""), argv[2:]
    if language not in LANGUAGES:
        sys.stderr.write(f"The stand-in speaks {', '.join(LANGUAGES)}, and no {language!r}.\n")
        return 2
    speaker: Callable[[list[str]], int] = import_module(f"agentq.testing.fake_agent.{language}").main
    return speaker(argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
