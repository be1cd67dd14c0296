"""`agentq serve`: the HTTP server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from agentq.cli.faults import flag
from agentq.cli.server import guard_own, located, note, settings_of
from agentq.coordinator import tracing
from agentq.coordinator.errors import Invalid
from agentq.coordinator.fields import one_sentence
from agentq.coordinator.server_settings import ServerSettings

Opt = typer.Option
OPTIONS = {"cors_origins": "--cors-origin", "hosts": "--name"}
"""Which option sets a setting, where the two are not named alike."""
PLAIN_HTTP = "Listen to others without TLS, on a private network or behind a proxy."


def serve(
    ctx: typer.Context,
    host: Annotated[str | None, Opt(metavar="ADDRESS", help="The address to listen at; 127.0.0.1.")] = None,
    port: Annotated[int | None, Opt(metavar="N", help="The port; 8765. 0 takes one that is free.")] = None,
    tls_cert: Annotated[str | None, Opt(metavar="FILE", help="A certificate, and those that vouch for it.")] = None,
    tls_key: Annotated[str | None, Opt(metavar="FILE", help="Its key.")] = None,
    plain_http: Annotated[bool, Opt("--plain-http", help=PLAIN_HTTP)] = False,
    token_file: Annotated[
        str | None, Opt(metavar="FILE", help="Tokens that may do everything, one on a line, beside others.")
    ] = None,
    require_tokens: Annotated[
        bool | None,
        Opt(
            "--require-tokens/--no-token",
            help="Ask for a token on loopback too, as it does; or let every user of this machine do everything.",
        ),
    ] = None,
    open_runners: Annotated[
        bool, Opt("--open-runners", help="Let runners of other systems in without a token, on loopback.")
    ] = False,
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

    It asks everybody for a token. That of this machine is made at the first start, and the commands and the SDK of
    its user show it by themselves (`agentq token show`); `agentq token new` makes them for others. What is not given
    here may stand in the table [server] of a settings file. Its documents are at /docs.

    \b
    Example: agentq serve
    Example: agentq serve --host 0.0.0.0 --tls-cert cert.pem --tls-key key.pem
    """
    given: dict[str, Any] = {"host": host, "port": port, "tls_cert": tls_cert, "tls_key": tls_key}
    given |= {"token_file": token_file, "log_level": log_level, "require_tokens": require_tokens}
    given |= {"cors_origins": cors_origin and tuple(cors_origin), "hosts": name and tuple(name)}
    given |= {"open_runners": open_runners or None, "plain_http": plain_http or None}
    server = _settings(ctx, {name: value for name, value in given.items() if value is not None})

    from agentq.coordinator.server import listening

    if insecure_no_tokens and require_tokens:
        raise Invalid("--insecure-no-tokens and --require-tokens contradict each other.")
    listening.check(server, insecure=insecure_no_tokens)
    settings = located(ctx, start=True)
    guard_own()
    _warn(server, insecure=insecure_no_tokens)
    ctx.call_on_close(tracing.export("agentq-server", note))
    listening.serve(settings, server, insecure=insecure_no_tokens, ready=_say_address)


def _say_address(url: str) -> None:
    note(f"serving at {url}; Ctrl-C ends it.")


def _settings(ctx: typer.Context, flags: Mapping[str, Any]) -> ServerSettings:
    """Flags, and below them what is set elsewhere."""
    try:
        return ServerSettings.model_validate({**settings_of(ctx).server.model_dump(exclude_unset=True), **flags})
    except ValidationError as error:
        raise _wrong(error, flags) from error


def _warn(server: ServerSettings, *, insecure: bool) -> None:
    """Say in a line what the server opens."""
    if insecure:
        note(f"INSECURE: whoever reaches {server.host} may do everything, also run any command on the workers.")
    elif not server.require_tokens:
        note("INSECURE: every user and program of this machine may do everything, also run any command on the workers.")
    elif server.open_runners:
        note("every user and program of this machine may be a runner, which gets prompts and says what became of runs.")


def _wrong(error: ValidationError, flags: Mapping[str, Any]) -> Invalid:
    """What is wrong, and which option said it, or that it is a setting."""
    name = str((error.errors(include_url=False)[0]["loc"] or ("",))[0])
    place = OPTIONS.get(name, flag(name)) if name in flags else f"The setting {name} of the server"
    return Invalid(f"{place}: {one_sentence(error).removeprefix(f'{name}: ')}")
