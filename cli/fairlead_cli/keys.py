"""`fairlead keys` lists, creates, changes, rotates and revokes keys of the gateway's clients, and shows their use."""

from datetime import UTC, datetime
from typing import Any

import click

from fairlead.errors import InvalidInput
from fairlead_cli.asking import ask, token_option, url_option
from fairlead_cli.printing import confirm, json_option, print_done, print_json, print_table
from fairlead_client.client import ControlApi
from fairlead_client.resources.gateway_keys import GatewayKey, GatewayKeyChange, GatewayKeyRequest, GatewayKeyRotation, GatewayKeyTotals
from fairlead_process.option_types import TimeOption, WholeOption
from fairlead_process.pool_names import METAVAR, namespace_option, pool_named


@click.group()
def keys() -> None:
    """API keys of the gateway's clients: list, create, change, rotate and revoke them, and show their use."""


@keys.command("list")
@json_option
@url_option
@token_option
def list_keys(as_json: bool, url: tuple[str, ...], token: str | None) -> None:
    """List all keys, newest first, without secrets, with their use in the last 24 hours."""
    found = ask(url, token, _all)
    if as_json:
        print_json(found)
        return
    if not found:
        click.echo("There is no key. Create one with `fairlead keys create NAME`.")
        return
    now = datetime.now(UTC)
    columns = ("id", "name", "begins", "opens", "limits a minute", "budgets", "class", "explains", "state", "last used", "last 24 hours")
    rows = [(key.id, key.name, f"{key.prefix}…", _scope(key), _limits(key), _budgets(key)) for key in found]
    used = [
        (key.priority_class or "default", "yes" if key.explain else "no", _state(key, now), _last_used(key), _last_day(key.last_day))
        for key in found
    ]
    print_table(columns, [(*row, *more) for row, more in zip(rows, used, strict=True)])


@keys.command()
@click.argument("key_id", metavar="ID")
@click.option("--from", "start", type=TimeOption(), default="now-24h", show_default=True, help="First minute: RFC 3339, or as now-7d.")
@click.option("--to", "end", type=TimeOption(), default="now", show_default=True, help="End: RFC 3339, or as now-1h.")
@json_option
@url_option
@token_option
def usage(key_id: str, start: str, end: str, as_json: bool, url: tuple[str, ...], token: str | None) -> None:
    """Show the use of a key: requests, tokens and refusals, by minute for up to 6 hours, by hour for up to 14 days,
    else by UTC day. Times are UTC; times without use have no line.
    """
    found = ask(url, token, lambda api: api.gateway_key_usage(key_id, {"from": start, "to": end}))
    if as_json:
        print_json(found)
        return
    if not found.points:
        click.echo(f"The key {key_id} was not used from {_minute(found.start)} to {_minute(found.end)}.")
        return
    rows = [(_minute(point.at), *_counts(point)) for point in found.points]
    columns = ("from", "requests", "prompt tokens", "output tokens", "refused")
    print_table(columns, [*rows, ("total", *_counts(found.total))])


@keys.command()
@click.argument("name")
@click.option("--pool", "pools", multiple=True, metavar=METAVAR, help="Open this pool only; may be repeated.")
@namespace_option
@click.option("--model", "models", multiple=True, help="Open this model only; may be repeated.")
@click.option("--days", type=WholeOption(1, 3650), help="Days until it expires; default: it does not expire.")
@click.option(
    "--requests-per-minute", type=WholeOption(1, 10**12), help="Maximum requests per minute; further ones get a 429. Default: no limit."
)
@click.option(
    "--tokens-per-minute",
    type=WholeOption(1, 10**12),
    help="Maximum tokens per minute, of prompts and answers together. Default: no limit.",
)
@click.option(
    "--class", "priority_class", help="Priority class of its requests, which may ask for a lower one; default: the class `default`."
)
@click.option("--budget-day", metavar="AMOUNT", help="What its requests may cost in a UTC day, such as 25.00; then they are refused.")
@click.option("--budget-month", metavar="AMOUNT", help="What its requests may cost in a UTC month; then they are refused.")
@click.option("--budget-currency", metavar="CURRENCY", help="Currency of the budgets, such as EUR.")
@click.option(
    "--budget-soft-percent", type=WholeOption(1, 100), help="Percentage of a budget at which its soft limit is reported; default: 80."
)
@click.option("--explain", is_flag=True, help="Its requests may ask that their routing decisions are kept (x-fairlead-explain: 1).")
@json_option
@url_option
@token_option
def create(
    name: str,
    pools: tuple[str, ...],
    namespace: str | None,
    models: tuple[str, ...],
    days: int | None,
    requests_per_minute: int | None,
    tokens_per_minute: int | None,
    priority_class: str | None,
    explain: bool,
    as_json: bool,
    url: tuple[str, ...],
    token: str | None,
    **budget: Any,
) -> None:
    """Create a key and print its secret, which is never shown again. The token needs the role operator."""
    request = GatewayKeyRequest(
        name=name,
        pools=tuple(str(pool_named(one, namespace, "--pool")) for one in pools),
        models=models,
        days=days,
        requests_per_minute=requests_per_minute,
        tokens_per_minute=tokens_per_minute,
        priority_class=priority_class,
        explain=explain,
        **budget,
    )
    made, unserved = ask(url, token, lambda api: _made(api, request))
    if unserved:
        click.echo(unserved, err=True)
    if as_json:
        print_json(made)
        return
    click.echo(made.secret)
    click.echo(
        f"Key {made.id} gives access to {_scope(made)}; limits per minute: {_limits(made)}; budgets: {_budgets(made)}. "
        "Keep the secret above: it is not shown again.",
        err=True,
    )


@keys.command()
@click.argument("key_id", metavar="ID")
@click.option("--name", help="Another name.")
@click.option("--pool", "pools", multiple=True, metavar=METAVAR, help="Open these pools only; may be repeated. '' opens all.")
@namespace_option
@click.option("--model", "models", multiple=True, help="Open these models only; may be repeated. '' opens all.")
@click.option("--days", type=WholeOption(0, 3650), help="Days from now until it expires; 0: it does not expire.")
@click.option("--requests-per-minute", type=WholeOption(0, 10**12), help="Maximum requests per minute; 0: no limit.")
@click.option(
    "--tokens-per-minute", type=WholeOption(0, 10**12), help="Maximum tokens per minute, of prompts and answers together; 0: no limit."
)
@click.option("--class", "priority_class", help="Priority class of its requests; '' is the class `default`.")
@click.option(
    "--budget-day",
    metavar="AMOUNT",
    help="What its requests may cost in a UTC day, such as 25.00; then they are refused. '' removes it.",
)
@click.option("--budget-month", metavar="AMOUNT", help="What its requests may cost in a UTC month; then they are refused. '' removes it.")
@click.option("--budget-currency", metavar="CURRENCY", help="Currency of the budgets, such as EUR.")
@click.option(
    "--budget-soft-percent", type=WholeOption(1, 100), help="Percentage of a budget at which its soft limit is reported; default: 80."
)
@click.option(
    "--explain/--no-explain",
    default=None,
    help="Whether its requests may ask that their routing decisions are kept (x-fairlead-explain: 1).",
)
@json_option
@url_option
@token_option
def change(
    key_id: str,
    pools: tuple[str, ...],
    namespace: str | None,
    models: tuple[str, ...],
    as_json: bool,
    url: tuple[str, ...],
    token: str | None,
    **given: Any,
) -> None:
    """Change a key. Its secret stays, and so do all values that are not given. The token needs the role operator."""
    asked = GatewayKeyChange(
        pools=tuple(str(pool_named(one, namespace, "--pool")) for one in pools if one) if pools else None,
        models=tuple(one for one in models if one) if models else None,
        **given,
    )
    if asked == GatewayKeyChange():
        raise InvalidInput("change", None, "write at least one option that says what to change")
    changed = ask(url, token, lambda api: api.change_gateway_key(key_id, asked))
    if as_json:
        print_json(changed)
        return
    click.echo(
        f"Key {changed.id} ({changed.name}) gives access to {_scope(changed)}; limits per minute: {_limits(changed)}; "
        f"budgets: {_budgets(changed)}; "
        f"its requests may {'' if changed.explain else 'not '}ask that their routing decisions are kept."
    )


@keys.command()
@click.argument("key_id", metavar="ID")
@click.option("--hours", type=WholeOption(0, 720), default=24, show_default=True, help="How long the former secret is still accepted.")
@json_option
@url_option
@token_option
def rotate(key_id: str, hours: int, as_json: bool, url: tuple[str, ...], token: str | None) -> None:
    """Give a key another secret and print the secret, which is never shown again. The token needs the role operator."""
    rotated = ask(url, token, lambda api: api.rotate_gateway_key(key_id, GatewayKeyRotation(hours=hours)))
    if as_json:
        print_json(rotated)
        return
    click.echo(rotated.secret)
    until = "is refused from now on" if rotated.former_until is None else f"is accepted until {_minute(rotated.former_until)} UTC"
    click.echo(f"The former secret of key {rotated.id} ({rotated.name}) {until}.", err=True)


@keys.command()
@click.argument("key_id", metavar="ID")
@click.option("--yes", is_flag=True, help="Revoke without asking.")
@json_option
@url_option
@token_option
def revoke(key_id: str, yes: bool, as_json: bool, url: tuple[str, ...], token: str | None) -> None:
    """Revoke a key permanently. The token needs the role operator."""
    confirm(yes, f"Revoke the key {key_id}? Whatever uses it stops working.")
    ask(url, token, lambda api: api.revoke_gateway_key(key_id))
    print_done(as_json, {"id": key_id, "done": "revoked"}, f"Key {key_id} is revoked.")


async def _all(api: ControlApi) -> list[GatewayKey]:
    found: list[GatewayKey] = []
    cursor: str | None = None
    while True:
        page = await api.gateway_keys(cursor=cursor, limit=100)
        found += page.items
        cursor = page.next_cursor
        if cursor is None:
            return found


async def _made(api: ControlApi, request: GatewayKeyRequest) -> tuple[GatewayKey, str]:
    """Return the new key, and a sentence about the key's models that no pool declares; "" if there are no such
    models.
    """
    key = await api.create_gateway_key(request)
    served = sorted({pool.model for pool in (await api.pools(limit=100)).items}) if request.models else []
    missing = [one for one in request.models if one not in served]
    if not missing:
        return key, ""
    have = f"pools declare {', '.join(served)}" if served else "there is no pool"
    return key, f"No pool declares {', '.join(missing)}; {have}. A name that an engine or an adapter adds works too."


def _scope(key: GatewayKey) -> str:
    return ", ".join((*key.pools, *key.models)) or "everything"


def _limits(key: GatewayKey) -> str:
    limits = ((key.requests_per_minute, "requests"), (key.tokens_per_minute, "tokens"))
    return ", ".join(f"{most:,} {words}" for most, words in limits if most is not None) or "none"


def _budgets(key: GatewayKey) -> str:
    budgets = ((key.budget_day, "day"), (key.budget_month, "month"))
    return ", ".join(f"{most} {key.budget_currency} a {span}" for most, span in budgets if most is not None) or "none"


def _state(key: GatewayKey, now: datetime) -> str:
    if key.revoked_at is not None:
        return f"revoked {_day(key.revoked_at)}"
    if key.budget_ends_at is not None and key.budget_ends_at > now:
        return f"budget used up until {_minute(key.budget_ends_at)}"
    if key.expires_at is None:
        return "does not expire"
    return f"{'expired' if key.expires_at <= now else 'expires'} {_day(key.expires_at)}"


def _last_used(key: GatewayKey) -> str:
    return "never" if key.last_used_at is None else _minute(key.last_used_at)


def _last_day(total: GatewayKeyTotals) -> str:
    tokens = total.prompt_tokens + total.output_tokens
    refused = sum(total.refused.values())
    counts = ((total.requests, "requests"), (tokens, "tokens"), (refused, "refused"))
    return ", ".join(f"{count:,} {words}" for count, words in counts if count) or "nothing"


def _counts(total: GatewayKeyTotals) -> tuple[str, ...]:
    refused = ", ".join(f"{count:,} {reason}" for reason, count in sorted(total.refused.items()))
    return (*(f"{count:,}" for count in (total.requests, total.prompt_tokens, total.output_tokens)), refused or "0")


def _minute(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M")


def _day(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%d")
