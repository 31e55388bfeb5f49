"""`fairlead verify` checks that the control API's records agree with each other. It reads the public API only."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import click

from fairlead.tables import PoolKey
from fairlead_cli.asking import ask, token_option, url_option
from fairlead_cli.printing import json_option, print_json
from fairlead_client.client import ControlApi
from fairlead_client.public.calling import Query
from fairlead_client.resources.pages import Page
from fairlead_client.verifying import Verifier
from fairlead_process.commands import ExitCode
from fairlead_process.pool_names import pool_argument

Item = TypeVar("Item")


@click.command()
@url_option
@token_option
@json_option
@pool_argument
@click.option("--decisions", default=2000, show_default=True, type=click.IntRange(0), help="Number of newest decisions to check.")
@click.option(
    "--moves",
    default=1000,
    show_default=True,
    type=click.IntRange(0),
    help="Number of newest migrations, and of newest re-routes, to check.",
)
@click.option("--sessions", default=500, show_default=True, type=click.IntRange(0), help="Number of most recently seen sessions to check.")
def verify(url: tuple[str, ...], token: str | None, as_json: bool, pool: str | None, decisions: int, moves: int, sessions: int) -> None:
    """Compute recorded choices again and look for contradictions.

    Every decision's rule, terms, limits, reason and sentence must lead to the chosen instance. Every migration must be
    a step of its session's history, with an outcome and a verdict that its own numbers support. A session's history
    must lead to its present instance without a gap. Without a pool, the audit log's hash chain is checked too, if the
    token may read the whole log. Prints each contradiction; the exit code is 1 if there is any.
    """
    verifier = ask(url, token, lambda api: collect(api, pool, decisions, moves, sessions))
    if as_json:
        print_json({"contradictions": verifier.found, "looked_at": verifier.looked_at, "rules": verifier.rules})
    else:
        _tell(verifier)
    if verifier.found:
        raise click.exceptions.Exit(ExitCode.FAILED)


def _tell(verifier: Verifier) -> None:
    for line in verifier.found:
        click.echo(line)
    counts = ", ".join(f"{count:,} {what}" for what, count in verifier.looked_at.items())
    seen = counts or "nothing, because nothing was recorded"
    click.echo(f"Checked {seen}: {len(verifier.found) or 'no'} contradiction{'' if len(verifier.found) == 1 else 's'}.")
    for policy, rules in sorted(verifier.rules.items()):
        click.echo(f"  {policy}: {', '.join(f'{rule} {count:,}' for rule, count in rules.most_common())}")


async def collect(api: ControlApi, pool: str | None, decisions: int, moves: int, sessions: int) -> Verifier:
    """Check the newest decisions, moves and sessions, of all pools or of `pool` (namespace/name), and without a pool
    the audit log. Return the verifier, which has the contradictions.

    Raises ApiProblem 404 for a pool that does not exist.
    """
    verifier = Verifier()
    if pool is not None:
        await api.pool(PoolKey.parse(pool), instances=False)  # else a pool that does not exist would pass
    await _each(api.decisions, pool, decisions, verifier.decision)
    await _each(api.reroutes, pool, moves, verifier.reroute)
    await _each(api.migrations, pool, moves, lambda migration: verifier.migration(migration, api))
    await _each(api.sessions, pool, sessions, lambda session: verifier.session(session, api))
    if pool is None:
        await verifier.audit(api)
    return verifier


async def _each(
    listing: Callable[[Query], Awaitable[Page[Item]]], pool: str | None, most: int, look: Callable[[Item], Awaitable[None]]
) -> None:
    """Call `look` with each of the newest `most` items of a list, which is requested page by page."""
    cursor: str | None = None
    left = most
    while left > 0:
        page = await listing({"pool": pool, "cursor": cursor, "limit": min(left, 100)})
        for item in page.items:
            await look(item)
        left -= len(page.items)
        cursor = page.next_cursor
        if cursor is None:
            return
