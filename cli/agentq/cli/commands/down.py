"""`agentq down`: stops the embedded server."""

from __future__ import annotations

import typer

from agentq.cli.connect import embedded_server, read_settings, refuse_in_agent_run
from agentq.cli.options import Json
from agentq.cli.render import print_json


def down(ctx: typer.Context, json: Json = False) -> None:
    """Stop the embedded server. Its data are kept; the next start loads them.

    \b
    Example: agentq down
    """
    refuse_in_agent_run(ctx)
    server = embedded_server(read_settings(ctx).settings)
    stopped = server.stop()
    if json:
        print_json({"stopped": stopped, "folder": str(server.folder)})
    elif stopped:
        print(f"Stopped the server in {server.folder}; everything in it is kept.")
    else:
        print(f"No server ran in {server.folder}.")
