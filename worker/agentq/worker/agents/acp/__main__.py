"""`python -m agentq.worker.agents.acp [OPTIONS] -- AGENT ARGS…`: runs one turn of an Agent Client Protocol agent.

Reads the prompt from stdin and writes one line of JSON per agent event to stdout (format `agentq`).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from pathlib import Path

from agentq.worker.agents.acp.turn import AcpTurn, AcpTurnOptions

EXIT_USAGE = 2


def main() -> int:
    """Read the options and the prompt, and run the turn."""
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


def _parse_options(arguments: list[str]) -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(prog="agentq.worker.agents.acp", allow_abbrev=False)
    parser.add_argument("--model", help="the model that the agent is to use")
    conversation = parser.add_mutually_exclusive_group()
    conversation.add_argument("--resume", metavar="ID", help="continue this conversation")
    conversation.add_argument("--fork", metavar="ID", help="start a new conversation from this one")
    parser.add_argument("--permissions", choices=("read", "edit", "full"), default="edit")
    parser.add_argument(
        "--startup", type=float, default=120, metavar="SECONDS", help="how long each step of its start may take"
    )
    separator = arguments.index("--") if "--" in arguments else len(arguments)
    known = parser.parse_args(arguments[:separator])
    if not arguments[separator + 1 :]:
        parser.error("say which agent: -- AGENT ARGS…")
    return known, arguments[separator + 1 :]


if __name__ == "__main__":
    sys.exit(main())
