"""`fairlead advice` shows the problems of the pools and their causes, and plans remedies."""

import click

from fairlead.advice import wording
from fairlead.advice.findings import HarmUnit
from fairlead.tables import PoolKey
from fairlead_cli.asking import ask
from fairlead_cli.planning import Approval, approval_options, plan_and_apply
from fairlead_cli.printing import print_json, time_words
from fairlead_client.resources.advice import Advice
from fairlead_process.pool_names import pool_argument


@click.command()
@pool_argument
@click.option(
    "--plan", "number", type=click.IntRange(1), help="Plan the remedy of this finding, show its effect, and apply it on confirmation."
)
@approval_options
def advice(pool: str | None, number: int | None, approval: Approval) -> None:
    """Show the problems of all pools, or of one pool, with their causes and the plans that would help; the greatest
    harm first.

    Planning needs a token with the role that this kind of change requires.
    """
    key = None if pool is None else PoolKey.parse(pool)
    found = ask(approval.url, approval.token, lambda api: api.advice(key))
    if number is not None:
        _plan(found.items, number, approval)
        return
    if approval.as_json:
        print_json(found)
        return
    if not found.items:
        click.echo(f"Nothing hurts {pool or 'any pool'} ({time_words(found.at)}).")
        return
    for place, one in enumerate(found.items, 1):
        click.echo(f"{place:>3}. [{one.level}] {one.sentence}")
        click.echo(f"     harm: {_harm(one)}{f'; plan: {one.plan_words} (--plan {place})' if one.plan else ''}")
    if not found.complete:
        click.echo(f"Only the first {found.pools} pools were examined; name a pool to see another.")


def _plan(items: list[Advice], number: int, approval: Approval) -> None:
    if number > len(items):
        raise click.ClickException(f"there is no finding {number}; there are {len(items)} now")
    chosen = items[number - 1]
    approval.tell(chosen.sentence)
    if chosen.plan is None:
        raise click.ClickException(f"there is no plan for finding {number}; docs/advice.md says what to examine")
    plan_and_apply(PoolKey.parse(chosen.pool), chosen.plan, approval)


def _harm(one: Advice) -> str:
    match one.unit:
        case HarmUnit.REQUESTS:
            return f"{wording.rate(one.harm)} miss the objectives" if one.harm else "none yet"
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
        case HarmUnit.HITS:
            return f"{one.harm:.1%} of prompt tokens are computed that a cache could hold"
