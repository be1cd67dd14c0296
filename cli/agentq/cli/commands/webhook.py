"""`agentq webhook`: sends events to webhook addresses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from agentq.cli.connect import connect_backend, print_note, read_settings
from agentq.cli.options import TYPER_SETTINGS, Json
from agentq.cli.parse.option_errors import parse_duration_option
from agentq.cli.render import on_terminal, print_json, print_row, print_table
from agentq.cli.run_references import find_runs
from agentq.coordinator.bounds import DELIVERIES_KEPT, SECRET_OVERLAP_MS
from agentq.coordinator.errors import NotAllowed, WaitTimedOut
from agentq.coordinator.events.event_filter import EventFilter
from agentq.coordinator.model.durations import format_iso
from agentq.coordinator.public_json.webhooks import webhook_json
from agentq.coordinator.storage.url import is_coordinator_url
from agentq.coordinator.webhooks.verbs import HTTPS_ONLY_MESSAGE, WebhookDelivery, WebhookRecord

if TYPE_CHECKING:
    from agentq.sdk.backend.webhooks import WebhookVerbs

Opt = typer.Option
Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of a webhook.")]
Names = list[str] | None
TEST_MS = 30_000

webhook = typer.Typer(**TYPER_SETTINGS, no_args_is_help=True, help="Send events to webhook addresses.")


@webhook.callback()
def _webhook() -> None:
    """Send events to webhook addresses. `agentq serve` delivers them."""


@webhook.command("add")
def add(
    ctx: typer.Context,
    url: Annotated[str, typer.Argument(metavar="URL", help="Such as https://example.com/agentq.")],
    name: Annotated[str | None, Opt(metavar="NAME", help="Name of the webhook; generated if not given.")] = None,
    event: Annotated[Names, Opt(metavar="EVENT", help="Only these events, such as failed.")] = None,
    queue: Annotated[Names, Opt(metavar="NAME", help="Only runs of these queues.")] = None,
    plan: Annotated[Names, Opt(metavar="PLAN", help="Only runs of these plans.")] = None,
    session: Annotated[Names, Opt(metavar="NAME", help="Only turns of these sessions.")] = None,
    run: Annotated[Names, Opt(metavar="RUN", help="Only these runs.")] = None,
    state: Annotated[Names, Opt(metavar="STATE", help="Only changes to these states.")] = None,
    json: Json = False,
) -> None:
    """Send new events to an address. Prints the signing secret, which is shown only once.

    \b
    Example: agentq webhook add https://example.com/agentq --event failed --queue builds
    """
    settings = read_settings(ctx)
    # A coordinator goes by its own settings.
    if url.startswith("http://") and not (settings.server.webhook_http or is_coordinator_url(settings.settings.url)):
        raise NotAllowed(HTTPS_ONLY_MESSAGE)
    backend = connect_backend(ctx, start=True)
    runs = None if run is None else find_runs(backend, run)
    parts = {"event": event, "queue": queue, "plan": plan, "session": session, "run": runs, "state": state}
    interest = EventFilter.asked({part: names for part, names in parts.items() if names})
    made, secret = backend.webhooks.add(name, url, interest)
    if json:
        print_json({**webhook_json(made), "secret": secret})
        return
    print_row(made.name, secret)
    print_note(f"keep the secret: it is not shown again, and the receiver needs it. It is told of {interest}.")


@webhook.command("ls")
def ls(ctx: typer.Context, json: Json = False) -> None:
    """List webhooks: their addresses, filters and delivery state.

    \b
    Example: agentq webhook ls
    """
    found = connect_backend(ctx).webhooks.all()
    if json:
        for each in found:
            print_json(webhook_json(each))
        return
    rows = [[each.name, each.state, each.url, str(each.filter), _describe_state(each)] for each in found]
    print_table(["webhook", "state", "url", "told of", "standing"], rows, cut={"url", "told of", "standing"})
    if not found and on_terminal():
        print_note("there are no webhooks; `agentq webhook add URL` makes one.")


@webhook.command("rm")
def rm(ctx: typer.Context, name: Name) -> None:
    """Remove a webhook, with its log.

    \b
    Example: agentq webhook rm WEBHOOK
    """
    connect_backend(ctx).webhooks.remove(name)
    print_row(name, "removed")


@webhook.command("pause")
def pause(
    ctx: typer.Context,
    name: Name,
    why: Annotated[str, Opt(metavar="TEXT", help="Shown in lists.")] = "",
) -> None:
    """Pause a webhook. When it is resumed, it sends the events of the pause that are still kept.

    \b
    Example: agentq webhook pause WEBHOOK --why 'the receiver moves'
    """
    print_row(name, connect_backend(ctx).webhooks.pause(name, why).state)


@webhook.command("resume")
def resume(ctx: typer.Context, name: Name) -> None:
    """Resume a webhook at its last position, also one that was disabled after too many failures.

    \b
    Example: agentq webhook resume WEBHOOK
    """
    print_row(name, connect_backend(ctx).webhooks.resume(name).state)


@webhook.command("rotate")
def rotate(
    ctx: typer.Context,
    name: Name,
    overlap: Annotated[str | None, Opt(metavar="DURATION", help="How long the old secret also signs; 24h.")] = None,
) -> None:
    """Replace the secret of a webhook. Prints the new one, which is shown only once.

    \b
    Example: agentq webhook rotate WEBHOOK --overlap 1h
    """
    overlap_ms = SECRET_OVERLAP_MS if overlap is None else parse_duration_option(overlap, "--overlap")
    print_row(name, connect_backend(ctx).webhooks.rotate(name, overlap_ms=overlap_ms))


@webhook.command("deliveries")
def deliveries(
    ctx: typer.Context,
    name: Name,
    limit: Annotated[int, Opt(metavar="N", min=1, max=DELIVERIES_KEPT, help="The most entries.")] = 20,
    json: Json = False,
) -> None:
    """List the last deliveries and their results, newest first.

    \b
    Example: agentq webhook deliveries WEBHOOK
    """
    found = connect_backend(ctx).webhooks.deliveries(name, limit=limit)
    if json:
        for each in found:
            print_json({**each.model_dump(mode="json"), "at": format_iso(each.at_ms)})
        return
    rows = [
        [format_iso(each.at_ms), each.message, each.type, _describe_delivery(each), f"{each.took_ms} ms"]
        for each in found
    ]
    print_table(["at", "message", "type", "answer", "took"], rows)


@webhook.command("redeliver")
def redeliver(
    ctx: typer.Context,
    name: Name,
    message: Annotated[
        str, typer.Argument(metavar="MESSAGE", help="Id of the message, from `agentq webhook deliveries`.")
    ],
) -> None:
    """Deliver a message again, unchanged, under the same id.

    \b
    Example: agentq webhook redeliver WEBHOOK MESSAGE
    """
    hooks = connect_backend(ctx).webhooks
    before = hooks.newest(name)
    hooks.redeliver(name, message)
    _show_delivery(hooks, name, message, before)


@webhook.command("test")
def test(ctx: typer.Context, name: Name) -> None:
    """Deliver an empty test message, and show the receiver's answer.

    \b
    Example: agentq webhook test WEBHOOK
    """
    hooks = connect_backend(ctx).webhooks
    before = hooks.newest(name)
    _show_delivery(hooks, name, hooks.test(name), before)


def _show_delivery(hooks: WebhookVerbs, name: str, message: str, before: str) -> None:
    """What became of a message that was just asked for."""
    found = hooks.awaited(name, message, before, TEST_MS)
    if found is None:
        raise WaitTimedOut(f"{message} was not delivered yet. `agentq serve` delivers messages; start it.")
    print_row(found.message, _describe_delivery(found))
    if not found.ok:
        raise typer.Exit(1)


def _describe_delivery(found: WebhookDelivery) -> str:
    return f"{found.status} taken" if found.ok else f"not taken: {found.error}"


def _describe_state(found: WebhookRecord) -> str:
    if found.state != "active":
        return found.why
    if found.failures:
        tries = "1 try" if found.failures == 1 else f"{found.failures} tries"
        return f"{tries} failed since {format_iso(found.failing_since_ms or 0)}: {found.why}"
    return "" if found.delivered_at_ms is None else f"taken {format_iso(found.delivered_at_ms)}"
