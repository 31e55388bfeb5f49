"""`fairlead notices` makes, lists, tests and deletes webhooks, and shows the notices that were sent to them."""

import asyncio
import sys

import click

from fairlead_cli.asking import ask, token_option, url_option
from fairlead_cli.listing import List, Look, list_options, show_list
from fairlead_cli.printing import confirm, json_option, print_done, print_json, short, when
from fairlead_client.client import ControlApi
from fairlead_client.resources.webhooks import SUBSCRIBED, NoticeForm, NoticeKind, NoticeState, Webhook, WebhookNotice, WebhookRequest
from fairlead_process.commands import ExitCode
from fairlead_process.pool_names import METAVAR, namespace_option, pool_named

LOOK_SECONDS = 0.5
LOOKS = 60
"""Maximum number of checks, LOOK_SECONDS apart, by which `test` waits for the end of the first delivery attempt."""


@click.group()
def notices() -> None:
    """Notices of what happens to pools, posted to webhooks: missed objectives, lost and stalled instances, halted
    rollouts, skipped schedules, applied plans.
    """


@notices.command("list")
@click.option("--webhook", metavar="ID", help="Only notices to this webhook.")
@list_options
def list_notices(webhook: str | None, limit: int, look: Look) -> None:
    """List notices, newest first, with the outcome of their newest attempt."""
    listed = List(
        fetch=lambda api, query: api.notices(query),
        path="/v1/notices",
        columns=("id", "at (UTC)", "webhook", "kind", "about", "state", "attempts", "newest attempt"),
        row=_notice_row,
        empty="There is no notice. `fairlead notices webhooks` lists the receivers.",
    )
    show_list(look, listed, {"webhook": webhook}, limit)


@notices.command()
@list_options
def webhooks(limit: int, look: Look) -> None:
    """List webhooks, newest first, without their addresses and secrets."""
    listed = List(
        fetch=lambda api, query: api.webhooks(cursor=query["cursor"], limit=query["limit"]),
        path="/v1/webhooks",
        columns=("id", "name", "receiver", "form", "kinds", "pools", "waiting", "delivered (UTC)", "newest problem"),
        row=_webhook_row,
        empty="There is no webhook. Make one with `fairlead notices create NAME URL`.",
    )
    show_list(look, listed, {}, limit)


@notices.command()
@click.argument("name")
@click.argument("address", metavar="URL")
@click.option(
    "--form", type=click.Choice([one.value for one in NoticeForm]), default="json", show_default=True, help="Format of the notices' bodies."
)
@click.option(
    "--kind", "kinds", multiple=True, type=click.Choice([one.value for one in SUBSCRIBED]), help="Only this kind; may be repeated."
)
@click.option("--pool", "pools", multiple=True, metavar=METAVAR, help="Only about this pool; may be repeated.")
@namespace_option
@json_option
@url_option
@token_option
def create(
    name: str,
    address: str,
    form: str,
    kinds: tuple[str, ...],
    pools: tuple[str, ...],
    namespace: str | None,
    as_json: bool,
    url: tuple[str, ...],
    token: str | None,
) -> None:
    """Make a webhook, and print once the secret that signs its notices. URL is the receiver's address; `-` reads it
    from standard input, which keeps it out of the shell's history. The token needs the role admin.
    """
    request = WebhookRequest(
        name=name,
        url=sys.stdin.readline().strip() if address == "-" else address,
        form=NoticeForm(form),
        kinds=tuple(NoticeKind(one) for one in kinds),
        pools=tuple(str(pool_named(one, namespace, "--pool")) for one in pools),
    )
    made = ask(url, token, lambda api: api.create_webhook(request))
    if as_json:
        print_json(made)
        return
    click.echo(made.secret)
    click.echo(f"Webhook {made.id} sends to {made.origin}. Keep the secret above: it is not shown again.", err=True)


@notices.command()
@click.argument("webhook_id", metavar="ID")
@json_option
@url_option
@token_option
def test(webhook_id: str, as_json: bool, url: tuple[str, ...], token: str | None) -> None:
    """Send a test notice and wait for the end of its first attempt. The token needs the role admin."""
    found = ask(url, token, lambda api: _tested(api, webhook_id))
    print_done(as_json, found, f"Notice {found.id}: {_newest(found)}")
    if found.state is not NoticeState.DELIVERED:
        raise click.exceptions.Exit(ExitCode.FAILED)


@notices.command()
@click.argument("webhook_id", metavar="ID")
@click.option("--yes", is_flag=True, help="Delete without asking.")
@json_option
@url_option
@token_option
def delete(webhook_id: str, yes: bool, as_json: bool, url: tuple[str, ...], token: str | None) -> None:
    """Delete a webhook, with its notices; waiting notices are not sent. The token needs the role admin."""
    confirm(yes, f"Delete the webhook {webhook_id} and its notices?")
    ask(url, token, lambda api: api.delete_webhook(webhook_id))
    print_done(as_json, {"id": webhook_id, "done": "deleted"}, f"Webhook {webhook_id} is deleted.")


async def _tested(api: ControlApi, webhook_id: str) -> WebhookNotice:
    """Return a test notice after its first delivery attempt. If the attempt takes too long, return the notice in its
    current state.
    """
    found = await api.test_webhook(webhook_id)
    for _ in range(LOOKS):
        if found.attempts and found.attempts[-1].seconds is not None:
            break
        await asyncio.sleep(LOOK_SECONDS)
        found = await api.notice(found.id)
    return found


def _notice_row(one: WebhookNotice) -> tuple[str, ...]:
    about = one.subject if one.subject == one.pool or not one.pool else f"{one.pool} {one.subject}"
    return one.id, when(one.at), one.webhook, one.kind.value, about, one.state.value, str(len(one.attempts)), _newest(one)


def _newest(one: WebhookNotice) -> str:
    if not one.attempts:
        return "not attempted yet"
    return short(one.attempts[-1].problem or f"delivered ({one.attempts[-1].status})", 100)


def _webhook_row(one: Webhook) -> tuple[str, ...]:
    kinds, pools = ", ".join(one.kinds) or "all", ", ".join(one.pools) or "all"
    delivered = when(one.delivered_at)
    return one.id, one.name, one.origin, one.form.value, kinds, pools, str(one.waiting), delivered, short(one.last_problem)
