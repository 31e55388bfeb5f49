"""`fairlead rejections` shows refused requests by cause, and the remedies."""

from typing import Any

import click

from fairlead_cli.listing import List, Look, list_options, print_found, show_list, watched
from fairlead_cli.printing import percent, print_table, when
from fairlead_client.client import ControlApi
from fairlead_client.public.calling import Query
from fairlead_client.resources.pages import Page
from fairlead_client.resources.rejections import RejectionGroup, RejectionReport
from fairlead_process.option_types import TimeOption
from fairlead_process.pool_names import pool_argument

COLUMNS = ("pool", "class", "cause", "status", "refused", "share", "last (UTC)")


@click.group()
def rejections() -> None:
    """Refused requests: how many, why, and what would help."""


@rejections.command("list")
@pool_argument
@click.option("--class", "priority_class", help="Only of this priority class.")
@click.option("--from", "start", type=TimeOption(), default="now-1h", show_default=True, help="Begin: RFC 3339, or as now-6h.")
@click.option("--to", "end", type=TimeOption(), default="now", show_default=True, help="End: RFC 3339, or as now-5m.")
@list_options
def list_rejections(pool: str | None, priority_class: str | None, start: str, end: str, limit: int, look: Look) -> None:
    """List refusals by pool, class and cause; JSON is the whole report, with samples."""
    query: Query = {"pool": pool, "priority_class": priority_class, "from": start, "to": end}

    async def groups(api: ControlApi, asked: dict[str, Any]) -> Page[RejectionGroup]:
        return Page(items=(await api.rejections(query)).groups[:limit])

    if look.output == "csv":
        show_list(look, List(fetch=groups, path="/v1/rejections", columns=COLUMNS, row=_row, empty=""), query, limit)
        return

    def shown(found: RejectionReport) -> None:
        if look.output == "json":
            print_found(look, found)
            return
        click.echo(f"{found.total:,} requests were refused, {found.served:,} served.")
        if found.groups:
            print_table(COLUMNS, [_row(one) for one in found.groups[:limit]])
        for told in dict.fromkeys(one.suggestion for one in found.groups if one.suggestion):
            click.echo(told)

    watched(look, lambda api: api.rejections(query), shown)


def _row(one: RejectionGroup) -> tuple[str, ...]:
    return one.pool, one.priority_class, one.reason.value, f"{one.status}", f"{one.count:,}", percent(one.share), when(one.last_at)
