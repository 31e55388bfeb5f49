"""`fairlead migrations` shows moves between instances, with their predicted and actual gains."""

from typing import Any

import click

from fairlead.reports.bindings import BindingReason
from fairlead.reports.moves import MoveOutcome
from fairlead.routing.explanations.explaining_moves import cause_facts
from fairlead_cli.listing import List, Look, list_options, look_options, print_found, range_options, show_list, watched
from fairlead_cli.printing import print_facts, seconds, short, when
from fairlead_client.client import ControlApi
from fairlead_client.resources.moves import Migration, Move, ReRoute
from fairlead_process.pool_names import pool_argument

COLUMNS = ("at (UTC)", "id", "pool", "session", "from", "to", "why", "predicted gain", "faster than staying", "outcome")
_requests = click.option("--requests", is_flag=True, help="List re-routes of single requests instead of session migrations.")


@click.group()
def migrations() -> None:
    """Session migrations between instances, with their predicted and actual gains."""


@migrations.command("list")
@_requests
@pool_argument
@click.option("--source", help="Only away from this instance.")
@click.option("--target", help="Only to this instance.")
@click.option("--session", help="Only of this session.")
@click.option("--trigger", type=click.Choice([one.value for one in BindingReason]), help="Only with this trigger.")
@click.option("--outcome", type=click.Choice([one.value for one in MoveOutcome]), help="Only with this outcome.")
@click.option("--paid-off/--not-paid-off", default=None, help="Only moves that were faster than staying, or only the others.")
@range_options
@list_options
def list_migrations(requests: bool, span: dict[str, Any], limit: int, look: Look, **filters: Any) -> None:
    """List migrations, newest first."""
    listed: List[Any] = List(
        fetch=lambda api, query: api.reroutes(query) if requests else api.migrations(query),
        path="/v1/reroutes" if requests else "/v1/migrations",
        columns=COLUMNS,
        row=_row,
        empty="Nothing moved in this time.",
    )
    show_list(look, listed, {**filters, **span}, limit)


@migrations.command()
@_requests
@click.argument("migration", metavar="ID")
@look_options
def show(requests: bool, migration: str, look: Look) -> None:
    """Show one migration, in a sentence and in figures."""

    async def fetch(api: ControlApi) -> Migration | ReRoute:
        return await (api.reroute(migration) if requests else api.migration(migration))

    def shown(found: Migration | ReRoute) -> None:
        if look.output == "json":
            print_found(look, found)
            return
        click.echo(found.explanation)
        facts = [
            *cause_facts(found),
            ("predicted for staying", seconds(found.predicted_source_ttft_seconds)),
            ("predicted for moving", seconds(found.predicted_target_ttft_seconds)),
            ("came after", seconds(found.actual_ttft_seconds)),
            ("handed over", "by a router, before its next turn" if found.handed_over else "no"),
            ("tokens moved", f"{found.tokens_moved:,}"),
            ("tokens recomputed", f"{found.tokens_recomputed:,}"),
            ("cache", "no transfer was tried" if found.cache is None else found.cache.value),
            ("transfer took", seconds(found.transfer_seconds)),
            ("transfer predicted", seconds(found.predicted_transfer_seconds)),
            ("request", short(found.request)),
            ("router", found.router),
        ]
        print_facts([*zip(COLUMNS, _row(found), strict=True), *facts])

    watched(look, fetch, shown)


def _row(one: Move) -> tuple[str, ...]:
    paid_off = {True: "yes", False: "no", None: "-"}[one.paid_off]
    gain = seconds(one.benefit_seconds)
    return (
        when(one.at),
        one.id,
        one.pool,
        short(one.session),
        one.origin,
        one.destination,
        f"{one.trigger.value}, handed over" if one.handed_over else one.trigger.value,
        gain,
        paid_off,
        one.outcome.value,
    )
