"""`fairlead cost` shows the cost of instances, and the clients that used them."""

from typing import Any

import click

from fairlead_cli.listing import List, Look, list_options, print_found, show_list, watched
from fairlead_cli.printing import print_table
from fairlead_client.client import ControlApi
from fairlead_client.public.calling import Query
from fairlead_client.resources.costs import CostGroup, CostLine, CostReport
from fairlead_client.resources.pages import Page
from fairlead_process.option_types import TimeOption
from fairlead_process.pool_names import pool_argument

COLUMNS = ("of", "amount", "prefill", "decode", "requests", "computed tokens", "cached tokens", "output tokens")


@click.command()
@pool_argument
@click.option(
    "--by",
    type=click.Choice([one.value for one in CostGroup]),
    default="pool",
    show_default=True,
    help="The groups among which the cost is divided.",
)
@click.option("--from", "start", type=TimeOption(), default="now-24h", show_default=True, help="Begin: RFC 3339, or as now-7d.")
@click.option("--to", "end", type=TimeOption(), default="now", show_default=True, help="End: RFC 3339, or as now-1d.")
@list_options
def cost(pool: str | None, by: str, start: str, end: str, limit: int, look: Look) -> None:
    """Show what instances cost: exactly divided among requests and idle time.

    Lines add up to hours of instances times their prices. JSON is the whole report, with steps and estimated savings.
    """
    query: Query = {"by": by, "pool": pool, "from": start, "to": end}

    async def lines(api: ControlApi, asked: dict[str, Any]) -> Page[CostLine]:
        return Page(items=(await api.cost(query)).lines[:limit])

    if look.output == "csv":
        show_list(look, List(fetch=lines, path="/v1/cost", columns=COLUMNS, row=_row, empty=""), query, limit)
        return

    def shown(found: CostReport) -> None:
        if look.output == "json":
            print_found(look, found)
        else:
            _tell(found, limit)

    watched(look, lambda api: api.cost(query), shown)


def _tell(found: CostReport, limit: int) -> None:
    if not found.totals:
        click.echo("No instance had a price in this range; set spec.cost of the pool.")
    for total in found.totals:
        measured = f" ({total.measured_hours:,.2f} at prices of OpenCost)" if total.measured_hours else ""
        click.echo(f"{total.amount} {total.currency} for {total.instance_hours:,.2f} instance hours{measured}, {total.idle} of it idle.")
    if found.lines:
        print_table(COLUMNS, [_row(one) for one in found.lines[:limit]])
    for saved in found.savings:
        click.echo(f"Estimated: {saved.by} saved {saved.amount} {saved.currency}. {saved.how}")
    if found.unpriced_hours:
        click.echo(f"{found.unpriced_hours:,.2f} instance hours had no price.")


def _row(one: CostLine) -> tuple[str, ...]:
    name = one.label or one.name or ("none" if one.part == "used" else one.part.value)
    counts = (one.requests, one.prefill_tokens, one.hit_tokens, one.output_tokens)
    return name, f"{one.amount} {one.currency}", one.prefill, one.decode, *("-" if count is None else f"{count:,}" for count in counts)
