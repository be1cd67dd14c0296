"""`agentq token`: manages access tokens of the HTTP server."""

from __future__ import annotations

from typing import Annotated

import typer

from agentq.cli.connect import connect_backend, home_folder, print_note, read_settings, refuse_in_agent_run
from agentq.cli.options import TYPER_SETTINGS, Json
from agentq.cli.parse.option_errors import parse_duration_option
from agentq.cli.render import on_terminal, print_json, print_row, print_table
from agentq.coordinator.clock import wall_ms
from agentq.coordinator.errors import Invalid
from agentq.coordinator.model.durations import format_duration, format_iso
from agentq.coordinator.public_json.tokens import token_json
from agentq.coordinator.security import local_token
from agentq.coordinator.security.token_revocation import RevocationResult
from agentq.coordinator.security.tokens import TOKEN_KINDS, TokenRecord, TokenScope

Opt = typer.Option

token = typer.Typer(**TYPER_SETTINGS, no_args_is_help=True, help="Manage access tokens of the HTTP server.")


@token.callback()
def _token() -> None:
    """Manage access tokens of the HTTP server."""


@token.command("new")
def new(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the token.")],
    scope: Annotated[
        str | None, Opt(metavar="SCOPES", help="Its rights: submit, read, work, admin, with commas.")
    ] = None,
    kind: Annotated[
        str,
        Opt(metavar="|".join(TOKEN_KINDS), help="Its holder; a runner's or worker's covers only the runs it holds."),
    ] = "client",
    queue: Annotated[list[str] | None, Opt(metavar="NAME", help="Queue it is limited to. Repeatable.")] = None,
    expires: Annotated[
        str | None, Opt(metavar="DURATION", help="Lifetime, such as 30d; unlimited if not given.")
    ] = None,
    rate: Annotated[str | None, Opt(metavar="N/TIME", help="Rate limit of its requests, such as 100/1s.")] = None,
    json: Json = False,
) -> None:
    """Create a token and print it. It is shown only once; the server keeps its digest.

    \b
    Example: agentq token new ci --scope submit,read --expires 30d
    Example: agentq token new laptop --kind runner
    """
    if scope is None and kind == "client":
        raise Invalid(f"Say what it may do, with --scope: {', '.join(TokenScope)}.")
    scopes = [each.strip() for each in (scope or TokenScope.WORK).split(",")]
    unknown = next((each for each in scopes if each not in list(TokenScope)), None)
    if unknown is not None:
        raise Invalid(f"--scope: {unknown[:40]!r} is not a scope; there are {', '.join(TokenScope)}.")
    if kind not in TOKEN_KINDS:
        raise Invalid(f"--kind: {kind[:40]!r} is not a kind; there are {', '.join(TOKEN_KINDS)}.")
    expires_ms = None if expires is None else parse_duration_option(expires, "--expires")
    known = connect_backend(ctx, start=True).tokens
    made, text = known.new(name, scopes, kind=kind, queues=queue or (), expires_ms=expires_ms, rate=rate)
    if json:
        print_json(token_json(made) | {"token": text})
    else:
        print(text)
        print_note(f"token {made.id} can {_describe_rights(made)}; it is not shown again.")


@token.command("show")
def show(
    ctx: typer.Context,
    header: Annotated[bool, Opt("--header", help="Print it as a request header, for curl -H @FILE.")] = False,
) -> None:
    """Print the token of this machine, which servers on loopback accept. It grants all rights.

    \b
    Example: agentq token show
    Example: curl -H @<(agentq token show --header) http://127.0.0.1:8765/runs
    """
    refuse_in_agent_run(ctx)
    text = local_token.ensure_local_token(home_folder(read_settings(ctx).settings))
    print(f"Authorization: Bearer {text}" if header else text)


@token.command("ls")
def ls(ctx: typer.Context, json: Json = False) -> None:
    """List tokens: the rights, expiry and last use of each.

    \b
    Example: agentq token ls
    """
    found = connect_backend(ctx).tokens.all()
    if json:
        for each in found:
            print_json(token_json(each))
        return
    rows = [
        [
            each.id,
            each.name,
            each.kind,
            ",".join(each.scopes),
            ",".join(each.queues),
            _format_expiry(each),
            _format_last_use(each),
        ]
        for each in found
    ]
    print_table(["token", "name", "kind", "scopes", "queues", "expires", "used"], rows)
    if not found and on_terminal():
        print_note("there are no tokens; `agentq token new NAME --scope submit,read` makes one.")


@token.command("revoke")
def revoke(
    ctx: typer.Context,
    tokens: Annotated[list[str], typer.Argument(metavar="TOKEN", help="Ids or unique names.")],
    with_what_it_made: Annotated[
        bool, Opt("--with-what-it-made", help="End the tokens, schedules, webhooks, sessions and runs they made, too.")
    ] = False,
    json: Json = False,
) -> None:
    """Revoke tokens at once.

    \b
    Example: agentq token revoke TOKEN
    Example: agentq token revoke --with-what-it-made TOKEN
    """
    known = connect_backend(ctx).tokens
    for each in tokens:
        if with_what_it_made:
            _print_revoked(known.revoke_tree(each), json=json)
            continue
        known.revoke(each)
        if json:
            print_json({"id": each, "state": "revoked"})
        else:
            print_row(each, "revoked")


def _print_revoked(ended: RevocationResult, *, json: bool) -> None:
    states = {"tokens": "revoked", "schedules": "removed", "webhooks": "removed", "sessions": "closed"}
    for kind, state in (*states.items(), ("runs", "cancelled")):
        for name in getattr(ended, kind):
            if json:
                print_json({"kind": kind.removesuffix("s"), "id": name, "state": state})
            else:
                print_row(f"{kind.removesuffix('s')} {name}", state)


def _describe_rights(made: TokenRecord) -> str:
    of_queues = f" in {', '.join(made.queues)}" if made.queues else ""
    until = "" if made.expires_at_ms is None else f" until {format_iso(made.expires_at_ms)}"
    return f"{', '.join(made.scopes)}{of_queues}{until}"


def _format_expiry(each: TokenRecord) -> str:
    if each.expires_at_ms is None:
        return "never"
    if not on_terminal():
        return format_iso(each.expires_at_ms)
    left_ms = each.expires_at_ms - wall_ms()
    return f"in {format_duration(left_ms)}" if left_ms > 0 else "expired"


def _format_last_use(each: TokenRecord) -> str:
    if each.used_at_ms is None:
        return ""
    return f"{format_duration(wall_ms() - each.used_at_ms)} ago" if on_terminal() else format_iso(each.used_at_ms)
