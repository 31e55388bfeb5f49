"""`fairlead schedules` shows the windows of schedules: open windows, the next starts, and the outcomes of past starts;
and the schedules that a forecast proposes.
"""

from collections.abc import Mapping
from typing import Any

import click

from fairlead.schedules.conflicts import Conflict
from fairlead.schedules.runs import RunOutcome
from fairlead_cli.asking import ask
from fairlead_cli.listing import List, Look, list_options, look_options, print_found, show_list, watched
from fairlead_cli.planning import Approval, approval_options, plan_and_apply
from fairlead_cli.printing import print_facts, print_json, print_table, short, when
from fairlead_client.resources.forecasts import PoolForecast
from fairlead_client.resources.schedules import ScheduleDetail, ScheduleItem, ScheduleRun
from fairlead_process.option_types import TimeOption
from fairlead_process.pool_names import name_argument, pool_argument, pool_named

COLUMNS = ("pool", "schedule", "starts", "zone", "for", "bounds", "now", "next (UTC)")


@click.group()
def schedules() -> None:
    """Schedules of pools: open windows, next starts, and the outcomes of past ones."""


@schedules.command("list")
@pool_argument
@list_options
def list_schedules(pool: str | None, limit: int, look: Look) -> None:
    """List schedules with their next start."""
    listed = List(
        fetch=lambda api, query: api.schedules(query), path="/v1/schedules", columns=COLUMNS, row=_row, empty="There is no schedule."
    )
    show_list(look, listed, {"pool": pool}, limit)


@schedules.command()
@name_argument
@click.argument("schedule", metavar="SCHEDULE")
@look_options
def show(name: str, schedule: str, look: Look) -> None:
    """Show a schedule, with its pool's windows of this week and their conflicts."""
    pool = pool_named(name)

    def shown(found: ScheduleDetail) -> None:
        if look.output == "json":
            print_found(look, found)
            return
        print_facts(list(zip(COLUMNS, _row(found.schedule), strict=True)))
        for start in found.schedule.next_starts:
            click.echo(f"starts {when(start.at)} UTC, {start.local} local time")
        if found.windows:
            click.echo(f"\nWindows of {found.schedule.pool} in the week from {when(found.start)} UTC:")
            print_table(
                ("schedule", "opens (UTC)", "closes (UTC)"), [(one.schedule, when(one.opens), when(one.closes)) for one in found.windows]
            )
        for conflict in found.conflicts:
            click.echo(_conflict(conflict))

    watched(look, lambda api: api.schedule(pool, schedule), shown)


@schedules.command()
@pool_argument
@click.option("--schedule", help="Only of the schedule of this name.")
@click.option("--outcome", type=click.Choice([one.value for one in RunOutcome]), help="Only with this outcome.")
@click.option("--from", "start", type=TimeOption(), help="Begin: RFC 3339, or as now-7d.")
@click.option("--to", "end", type=TimeOption(), help="End: RFC 3339, or as now-1d.")
@list_options
def runs(start: str | None, end: str | None, limit: int, look: Look, **filters: Any) -> None:
    """List the outcomes of past starts, newest first."""
    listed = List(
        fetch=lambda api, query: api.schedule_runs(query),
        path="/v1/schedule-runs",
        columns=("start (UTC)", "pool", "schedule", "outcome", "why", "overruled by", "opened", "closed"),
        row=_run,
        empty="No start was recorded in this time.",
    )
    show_list(look, listed, {**filters, "from": start, "to": end}, limit)


@schedules.command()
@name_argument
@click.option("--plan", is_flag=True, help="Plan the proposed schedules, show their effect, and apply them on confirmation.")
@approval_options
def forecast(name: str, plan: bool, approval: Approval) -> None:
    """Show the schedules that a pool's recorded demand suggests, and the effect that they would have had in the last
    week.
    """
    pool = pool_named(name)
    found = ask(approval.url, approval.token, lambda api: api.forecast(pool))
    if plan and found.request is None:
        raise click.ClickException(f"nothing to plan: {found.unknown or 'the pool has these schedules already'}")
    if plan and found.request is not None:
        plan_and_apply(pool, found.request, approval)
    elif approval.as_json:
        print_json(found)
    else:
        _tell_forecast(found)


def _tell_forecast(found: PoolForecast) -> None:
    if found.departed:
        click.echo(f"Schedules that follow the forecast are suspended: {found.departed}.")
    if found.unknown:
        click.echo(f"There is no forecast of {found.pool}: {found.unknown}.")
        return
    measured = "measured" if found.start_is_measured else "assumed, none was measured"
    click.echo(
        f"Windows open {(found.lead_seconds or 0) / 60:.0f} min before demand: a start takes {(found.start_seconds or 0) / 60:.0f} min "
        f"({measured}), then the cache fills."
    )
    rows = [(one["name"], one["cron"], one["timeZone"], one["duration"], _bounds(one)) for one in found.schedules]
    print_table(("schedule", "starts", "zone", "for", "instances"), rows)
    if not found.trials:
        click.echo("\nTheir effect in the last week is being computed; ask again in a minute.")
        return
    click.echo("\nThe last week again:")
    print_table(
        ("schedules", "instance hours", "late requests", "of"),
        [(one.schedules.value, f"{one.instance_hours:,.0f}", f"{one.late:,}", f"{one.requests:,}") for one in found.trials],
    )


def _bounds(schedule: Mapping[str, Any]) -> str:
    told = [f"{role['name']} {role.get('replicas', role.get('minReplicas'))}" for role in schedule["roles"]]
    return ", ".join(told) + ("" if "replicas" in schedule["roles"][0] else " or more")


def _row(one: ScheduleItem) -> tuple[str, ...]:
    state = "paused" if one.paused else "open" if one.window is not None else "closed"
    following = when(one.next_starts[0].at) if one.next_starts else "-"
    return (
        one.pool,
        one.name,
        one.cron_words,
        one.time_zone,
        f"{one.duration_seconds / 3600:g} h",
        ", ".join(one.subjects),
        state,
        following,
    )


def _conflict(one: Conflict) -> str:
    decided = "the larger bounds count" if one.decided_by is None else f"{one.decided_by} decides"
    over = ", ".join(one.subjects)
    return f"{one.schedule} and {one.other} are open together from {when(one.begins)} to {when(one.ends)} UTC, over {over}: {decided}."


def _run(one: ScheduleRun) -> tuple[str, ...]:
    why = one.reason.value if one.reason is not None else "-"
    return (
        when(one.start),
        one.pool,
        one.schedule,
        one.outcome.value,
        why,
        short(one.overruled_by),
        when(one.opened_at),
        when(one.closed_at),
    )
