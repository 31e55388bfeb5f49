"""`fairlead advice` shows what harms the pools and why, and plans remedies."""

import click

from fairlead.advice.findings import HarmUnit
from fairlead.tables import PoolKey
from fairlead_cli.asking import ask, token_option, url_option
from fairlead_cli.planning import plan_and_apply, pool_named, reason_option, yes_option
from fairlead_cli.printing import json_option, print_json, time_words
from fairlead_client.resources.advice import Advice


@click.command()
@click.argument("name", metavar="[[NAMESPACE/]NAME]", required=False)
@click.option(
    "--plan", "number", type=click.IntRange(1), help="Plan the remedy of this finding, show its effect, and apply it on confirmation."
)
@json_option
@reason_option
@yes_option
@url_option
@token_option
def advice(
    name: str | None, number: int | None, as_json: bool, reason: str | None, yes: bool, url: tuple[str, ...], token: str | None
) -> None:
    """Show what harms all pools, or one, why, and the plan that would help; the greatest harm first. A

    plan needs a token of the role that its kind of change needs.
    """
    pool = None if name is None else pool_named(name)
    found = ask(url, token, lambda api: api.advice(pool))
    if number is not None:
        _plan(found.items, number, reason, yes, url, token)
        return
    if as_json:
        print_json(found)
        return
    if not found.items:
        click.echo(f"Nothing hurts {pool or 'any pool'} ({time_words(found.at)}).")
        return
    for place, one in enumerate(found.items, 1):
        click.echo(f"{place:>3}. [{one.level}] {one.sentence}")
        click.echo(f"     harm: {_harm(one)}{f'; plan: {one.plan_words} (--plan {place})' if one.plan else ''}")
    if not found.complete:
        click.echo(f"Only the first {found.pools} pools were looked at; name a pool to see another.")


def _plan(items: list[Advice], number: int, reason: str | None, yes: bool, url: tuple[str, ...], token: str | None) -> None:
    if number > len(items):
        raise click.ClickException(f"there is no finding {number}; there are {len(items)} now")
    chosen = items[number - 1]
    click.echo(chosen.sentence)
    if chosen.plan is None:
        raise click.ClickException(f"no plan remedies finding {number}; docs/advice.md says what to look at")
    plan_and_apply(PoolKey.parse(chosen.pool), chosen.plan, reason, yes, url, token)


def _harm(one: Advice) -> str:
    match one.unit:
        case HarmUnit.REQUESTS:
            return f"{one.harm:.2f} requests/s miss the objectives"
        case HarmUnit.INSTANCES:
            return f"{one.harm:.0f} instance{'' if one.harm == 1 else 's'}" if one.harm else "none yet"
        case HarmUnit.WAITED_SECONDS:
            return f"users wait {one.harm:.0f} s longer per hour"
        case HarmUnit.SILENT_SECONDS:
            return f"{one.harm:.0f} s without news"
        case HarmUnit.ROUTERS:
            return f"{one.harm:.0f} router{'' if one.harm == 1 else 's'} apart"
        case HarmUnit.ERROR:
            return f"predictions have a mean error of {one.harm:.0%}"
