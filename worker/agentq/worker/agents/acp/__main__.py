"""`python -m agentq.worker.agents.acp [OPTIONS] -- AGENT ARGS…`: one turn of an agent that speaks the Agent Client
Protocol, with the prompt on stdin, and what it does on stdout, a line of JSON for each doing (format `agentq`)."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from pathlib import Path

from agentq.worker.agents.acp.turn import AcpTurn, AcpTurnOptions

EXIT_USAGE = 2


def main() -> int:
    """Read the command line and the prompt, and do it."""
    known, argv = _parse_options(sys.argv[1:])
    prompt = sys.stdin.buffer.read().decode("utf-8", "replace")
    if not prompt.strip():
        sys.stderr.write("The prompt is empty: write it to stdin.\n")
        return EXIT_USAGE
    options = AcpTurnOptions(
        argv=argv,
        prompt=prompt,
        cwd=Path.cwd(),
        env=os.environ,
        model=known.model,
        resume=known.resume,
        fork=known.fork,
        permissions=known.permissions,
        startup_s=known.startup,
    )
    return asyncio.run(_run_turn(options))


async def _run_turn(options: AcpTurnOptions) -> int:
    return await AcpTurn(options).run()


def _parse_options(words: list[str]) -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(prog="agentq.worker.agents.acp", allow_abbrev=False)
    parser.add_argument("--model", help="the model that the agent is to use")
    earlier = parser.add_mutually_exclusive_group()
    earlier.add_argument("--resume", metavar="ID", help="go on with this conversation")
    earlier.add_argument("--fork", metavar="ID", help="go on from this conversation, as another one")
    parser.add_argument("--permissions", choices=("read", "edit", "full"), default="edit")
    parser.add_argument(
        "--startup", type=float, default=120, metavar="SECONDS", help="how long each step of its start may take"
    )
    at = words.index("--") if "--" in words else len(words)
    known = parser.parse_args(words[:at])
    if not words[at + 1 :]:
        parser.error("say which agent: -- AGENT ARGS…")
    return known, words[at + 1 :]


if __name__ == "__main__":
    sys.exit(main())
