"""`fairlead keys` lists, makes and revokes API keys of the gateway's clients."""

from datetime import UTC, datetime

import click
import msgspec
from rich.console import Console
from rich.table import Table

from fairlead_cli.asking import ask, token_option, url_option
from fairlead_client.client import ControlApi
from fairlead_client.resources.gateway_keys import GatewayKey, GatewayKeyRequest, GatewayKeyTotals

_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def keys() -> None:
    """API keys of the gateway's clients: list, make and revoke them."""


@keys.command("list")
@_json
@url_option
@token_option
def list_keys(as_json: bool, url: str, token: str | None) -> None:
    """List all keys, newest first, without secrets, with what each was used for in the last 24 hours."""
    found = ask(url, token, _all)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
        return
    if not found:
        click.echo("There is no key. Make one with `fairlead keys create NAME`.")
        return
    now = datetime.now(UTC)
    columns = ("id", "name", "begins", "opens", "limits a minute", "state", "last used", "last 24 hours")
    table = Table(*columns, box=None, pad_edge=False, header_style="bold")
    for key in found:
        opens = (key.id, key.name, f"{key.prefix}…", _scope(key), _limits(key), _state(key, now))
        table.add_row(*opens, _last_used(key), _last_day(key.last_day))
    Console(soft_wrap=True, highlight=False, markup=False, width=240).print(table)


@keys.command()
@click.argument("name")
@click.option("--pool", "pools", multiple=True, metavar="NAMESPACE/NAME", help="Open this pool only; may be repeated.")
@click.option("--model", "models", multiple=True, help="Open this model only; may be repeated.")
@click.option("--days", type=int, help="Days until it expires; without, it does not.")
@click.option("--requests-per-minute", type=int, help="Further requests get a 429; without, there is no limit.")
@click.option("--tokens-per-minute", type=int, help="Prompts and answers together; without, there is no limit.")
@_json
@url_option
@token_option
def create(
    name: str,
    pools: tuple[str, ...],
    models: tuple[str, ...],
    days: int | None,
    requests_per_minute: int | None,
    tokens_per_minute: int | None,
    as_json: bool,
    url: str,
    token: str | None,
) -> None:
    """Make a key and print its secret, this once. The token needs the role operator."""
    request = GatewayKeyRequest(
        name=name, pools=pools, models=models, days=days, requests_per_minute=requests_per_minute, tokens_per_minute=tokens_per_minute
    )
    made = ask(url, token, lambda api: api.create_gateway_key(request))
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(made), indent=2).decode())
        return
    click.echo(made.secret)
    click.echo(
        f"Key {made.id} opens {_scope(made)}; limits a minute: {_limits(made)}. Keep the secret above: it is not shown again.", err=True
    )


@keys.command()
@click.argument("key_id", metavar="ID")
@click.option("--yes", is_flag=True, help="Revoke without asking.")
@url_option
@token_option
def revoke(key_id: str, yes: bool, url: str, token: str | None) -> None:
    """Revoke a key for ever. The token needs the role operator."""
    if not yes and not click.confirm(f"Revoke the key {key_id}? Whatever uses it stops working."):
        click.echo("Nothing was changed.")
        return
    ask(url, token, lambda api: api.revoke_gateway_key(key_id))
    click.echo(f"Key {key_id} is revoked.")


async def _all(api: ControlApi) -> list[GatewayKey]:
    found: list[GatewayKey] = []
    cursor: str | None = None
    while True:
        page = await api.gateway_keys(cursor=cursor, limit=100)
        found += page.items
        cursor = page.next_cursor
        if cursor is None:
            return found


def _scope(key: GatewayKey) -> str:
    return ", ".join((*key.pools, *key.models)) or "everything"


def _limits(key: GatewayKey) -> str:
    limits = ((key.requests_per_minute, "requests"), (key.tokens_per_minute, "tokens"))
    return ", ".join(f"{most:,} {words}" for most, words in limits if most is not None) or "none"


def _state(key: GatewayKey, now: datetime) -> str:
    if key.revoked_at is not None:
        return f"revoked {_day(key.revoked_at)}"
    if key.expires_at is None:
        return "does not expire"
    return f"{'expired' if key.expires_at <= now else 'expires'} {_day(key.expires_at)}"


def _last_used(key: GatewayKey) -> str:
    return "never" if key.last_used_at is None else key.last_used_at.astimezone(UTC).strftime("%Y-%m-%d %H:%M")


def _last_day(total: GatewayKeyTotals) -> str:
    tokens = total.prompt_tokens + total.output_tokens
    refused = sum(total.refused.values())
    counts = ((total.requests, "requests"), (tokens, "tokens"), (refused, "refused"))
    return ", ".join(f"{count:,} {words}" for count, words in counts if count) or "nothing"


def _day(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%d")
