"""`agentq serve`: the HTTP server."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from pydantic import ValidationError

from agentq.cli.server import located, note, settings_of
from agentq.coordinator import tracing
from agentq.coordinator.errors import Invalid
from agentq.coordinator.fields import one_sentence
from agentq.coordinator.settings import ServerSettings

Opt = typer.Option


def serve(
    ctx: typer.Context,
    host: Annotated[str | None, Opt(metavar="ADDRESS", help="The address to listen at; 127.0.0.1.")] = None,
    port: Annotated[int | None, Opt(metavar="N", help="The port; 8765. 0 takes one that is free.")] = None,
    tls_cert: Annotated[str | None, Opt(metavar="FILE", help="A certificate, and those that vouch for it.")] = None,
    tls_key: Annotated[str | None, Opt(metavar="FILE", help="Its key.")] = None,
    token_file: Annotated[
        str | None, Opt(metavar="FILE", help="Tokens that may do everything, one on a line, beside others.")
    ] = None,
    require_tokens: Annotated[bool, Opt("--require-tokens", help="Ask for a token on loopback too.")] = False,
    insecure_no_tokens: Annotated[
        bool, Opt("--insecure-no-tokens", help="Let anybody do everything who can reach it. Not for networks.")
    ] = False,
    cors_origin: Annotated[
        list[str] | None, Opt(metavar="ORIGIN", help="Whose pages may use it from a browser; none.")
    ] = None,
    name: Annotated[
        list[str] | None, Opt(metavar="HOST", help="A name that it is called by, such as a proxy's.")
    ] = None,
    log_level: Annotated[
        str | None, Opt(metavar="debug|info|warning|error", help="What it writes down of itself; info.")
    ] = None,
) -> None:
    """Serve the HTTP API, until Ctrl-C: for clients, dashboards and runners that do not reach the server themselves.

    On loopback it asks nobody for a token; elsewhere everybody, and `agentq token new` makes them. What is not given
    here may stand in the table [server] of agentq.toml. Its documents are at /docs.

    \b
    Example: agentq serve
    Example: agentq serve --host 0.0.0.0 --tls-cert cert.pem --tls-key key.pem
    """
    given: dict[str, Any] = {"host": host, "port": port, "tls_cert": tls_cert, "tls_key": tls_key}
    given |= {"token_file": token_file}
    given |= {"cors_origins": cors_origin and tuple(cors_origin), "hosts": name and tuple(name), "log_level": log_level}
    flags = {name: value for name, value in given.items() if value is not None}
    if require_tokens:
        flags["require_tokens"] = True
    set_elsewhere = settings_of(ctx).server.model_dump(exclude_unset=True)
    try:
        server = ServerSettings.model_validate({**set_elsewhere, **flags})
    except ValidationError as error:
        raise Invalid(f"A setting of the server is wrong: {one_sentence(error)}") from error
    if insecure_no_tokens and server.require_tokens:
        raise Invalid("--insecure-no-tokens and --require-tokens contradict each other.")

    from agentq.coordinator.server import listening
    from agentq.coordinator.server.access import is_loopback

    listening.check(server)
    settings = located(ctx, start=True)
    if insecure_no_tokens:
        note(f"INSECURE: whoever reaches {server.host} may do everything, also run any command on the workers.")
    elif not is_loopback(server.host) and not server.tls_cert:
        note("without TLS whoever is between reads tokens and prompts: give --tls-cert, or put a proxy before it.")
    ctx.call_on_close(tracing.export("agentq-server", note))
    listening.serve(
        settings, server, insecure=insecure_no_tokens, ready=lambda url: note(f"serving at {url}; Ctrl-C ends it.")
    )
