"""`agentq serve`: the HTTP server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from agentq.cli.connect import guard_embedded_server, locate_server, print_note, read_settings
from agentq.cli.parse.option_errors import flag_name
from agentq.coordinator import tracing
from agentq.coordinator.config.server_settings import ServerSettings
from agentq.coordinator.errors import Invalid
from agentq.coordinator.model.field_types import describe_error

Opt = typer.Option
FLAGS_BY_FIELD = {"cors_origins": "--cors-origin", "hosts": "--name"}
"""Which option sets a setting, where the two are not named alike."""
PLAIN_HTTP_HELP = "Accept connections from other machines without TLS, on a private network or behind a proxy."


def serve(
    ctx: typer.Context,
    host: Annotated[str | None, Opt(metavar="ADDRESS", help="The address to listen at; 127.0.0.1.")] = None,
    port: Annotated[int | None, Opt(metavar="N", help="The port; 8765. 0 takes a free one.")] = None,
    tls_cert: Annotated[str | None, Opt(metavar="FILE", help="Certificate with its chain, as PEM.")] = None,
    tls_key: Annotated[str | None, Opt(metavar="FILE", help="Its key.")] = None,
    plain_http: Annotated[bool, Opt("--plain-http", help=PLAIN_HTTP_HELP)] = False,
    token_file: Annotated[str | None, Opt(metavar="FILE", help="File of tokens with all rights, one per line.")] = None,
    require_tokens: Annotated[
        bool | None,
        Opt(
            "--require-tokens/--no-token",
            help="Require a token on loopback (default), or allow every user of this machine everything.",
        ),
    ] = None,
    open_runners: Annotated[
        bool, Opt("--open-runners", help="Accept runners of other systems without a token, on loopback.")
    ] = False,
    insecure_no_tokens: Annotated[
        bool, Opt("--insecure-no-tokens", help="Allow everything to every client that can connect. Not for networks.")
    ] = False,
    cors_origin: Annotated[
        list[str] | None, Opt(metavar="ORIGIN", help="Origin allowed to call it from a browser; none.")
    ] = None,
    name: Annotated[list[str] | None, Opt(metavar="HOST", help="Host name to accept, such as a proxy's.")] = None,
    log_level: Annotated[str | None, Opt(metavar="debug|info|warning|error", help="Level of its log; info.")] = None,
) -> None:
    """Serve the HTTP API, until Ctrl-C: for clients, dashboards and runners that cannot connect to Redis.

    Every client needs a token. The token of this machine is made at the first start, and the commands and the SDK of
    its user send it by themselves (`agentq token show`); `agentq token new` makes tokens for others. Settings not
    given here come from the table [server] of a settings file. The API's documents are at /docs.

    \b
    Example: agentq serve
    Example: agentq serve --host 0.0.0.0 --tls-cert cert.pem --tls-key key.pem
    """
    given: dict[str, Any] = {"host": host, "port": port, "tls_cert": tls_cert, "tls_key": tls_key}
    given |= {"token_file": token_file, "log_level": log_level, "require_tokens": require_tokens}
    given |= {"cors_origins": cors_origin and tuple(cors_origin), "hosts": name and tuple(name)}
    given |= {"open_runners": open_runners or None, "plain_http": plain_http or None}
    server = _server_settings(ctx, {name: value for name, value in given.items() if value is not None})

    from agentq.server import uvicorn_server

    if insecure_no_tokens and require_tokens:
        raise Invalid("--insecure-no-tokens and --require-tokens contradict each other.")
    uvicorn_server.check_settings(server, insecure=insecure_no_tokens)
    settings = locate_server(ctx, start=True)
    guard_embedded_server()
    _note_exposure(server, insecure=insecure_no_tokens)
    ctx.call_on_close(tracing.start_export("agentq-server", print_note))
    uvicorn_server.serve(settings, server, insecure=insecure_no_tokens, ready=_note_address)


def _note_address(url: str) -> None:
    print_note(f"serving at {url}; Ctrl-C ends it.")


def _server_settings(ctx: typer.Context, flags: Mapping[str, Any]) -> ServerSettings:
    """The settings: flags first, then settings from other sources."""
    try:
        return ServerSettings.model_validate({**read_settings(ctx).server.model_dump(exclude_unset=True), **flags})
    except ValidationError as error:
        raise _settings_error(error, flags) from error


def _note_exposure(server: ServerSettings, *, insecure: bool) -> None:
    """Say in a line what the server opens."""
    if insecure:
        print_note(
            f"INSECURE: every client that reaches {server.host} may do everything, also run any command on the workers."
        )
    elif not server.require_tokens:
        print_note(
            "INSECURE: every user and program of this machine may do everything, also run any command on the workers."
        )
    elif server.open_runners:
        print_note(
            "every user and program of this machine may be a runner, which gets prompts and says what became of runs."
        )


def _settings_error(error: ValidationError, flags: Mapping[str, Any]) -> Invalid:
    """The fault, with the option or the setting that has it."""
    name = str((error.errors(include_url=False)[0]["loc"] or ("",))[0])
    place = FLAGS_BY_FIELD.get(name, flag_name(name)) if name in flags else f"The setting {name} of the server"
    return Invalid(f"{place}: {describe_error(error).removeprefix(f'{name}: ')}")
