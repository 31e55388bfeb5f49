"""`fairlead slo` shows how well a pool met its objectives and how well it would have met other targets. It also changes
the targets by a plan.
"""

from typing import Any

import click

from fairlead.errors import InvalidInput
from fairlead.percentages import percentage
from fairlead_cli.asking import ask, token_option, url_option
from fairlead_cli.planning import Approval, approval_options, plan_and_apply
from fairlead_cli.printing import json_option, print_json, print_table, seconds, time_words
from fairlead_client.resources.plan_kinds import PlanKind, PlanRequest
from fairlead_client.resources.slo import SloShare, SloVersion, TaskBurnWindow, TaskShare, WhatIfShare
from fairlead_process.option_types import NumberOption, TimeOption
from fairlead_process.pool_names import name_argument, pool_named

_from = click.option("--from", "start", type=TimeOption(), default="now-1d", show_default=True, help="Begin: RFC 3339, or as now-6h.")
_to = click.option("--to", "end", type=TimeOption(), default="now", show_default=True, help="End: RFC 3339, or as now-1h.")
_class = click.option("--class", "priority_class", help="Requests of this priority class only.")
_ttft = click.option("--ttft", help="Time to first token, such as 5s; default: the present target.")
_tpot = click.option("--tpot", help="Time per output token, such as 80ms; default: the present target.")
_percentile = click.option(
    "--percentile", type=NumberOption(most=100, positive=True), help="Goal, in percent of requests; default: the present goal."
)


@click.group()
def slo() -> None:
    """A pool's objectives: versions, attainment, error budget, and the effect of other targets."""


@slo.command()
@name_argument
@json_option
@url_option
@token_option
def versions(name: str, as_json: bool, url: tuple[str, ...], token: str | None) -> None:
    """List the newest versions of a pool's objectives, each with its attainment."""
    found = ask(url, token, lambda api: api.slo_versions(pool_named(name), limit=50))
    if as_json:
        print_json(found.items)
        return
    columns = ("version", "TTFT", "TPOT", "goal", "in time", "requests", "classes", "from", "until", "by")
    print_table(columns, [_version(one) for one in found.items])


@slo.command()
@name_argument
@_from
@_to
@click.option("--version", type=click.IntRange(0), help="Only this version of the objectives.")
@_class
@json_option
@url_option
@token_option
def attainment(
    name: str,
    start: str,
    end: str,
    version: int | None,
    priority_class: str | None,
    as_json: bool,
    url: tuple[str, ...],
    token: str | None,
) -> None:
    """Show the attainment of the objectives, by version and priority class."""
    found = ask(
        url,
        token,
        lambda api: api.slo_attainment(pool_named(name), start=start, end=end, version=version, priority_class=priority_class),
    )
    if as_json:
        print_json(found)
        return
    click.echo(f"{found.pool} from {time_words(found.start)} to {time_words(found.end)}")
    if not found.shares:
        click.echo("No request ended in this time.")
        return
    columns = ("version", "class", "requests", "in time", "TTFT in time", "TPOT in time", "refused", "failed", "in time incl. refused")
    print_table(columns, [_share(one) for one in (*found.shares, found.whole)])


@slo.command("tasks")
@name_argument
@_from
@_to
@json_option
@url_option
@token_option
def of_tasks(name: str, start: str, end: str, as_json: bool, url: tuple[str, ...], token: str | None) -> None:
    """Show how well whole tasks met their targets (spec.slo.task), by version and priority class."""
    found = ask(url, token, lambda api: api.slo_tasks(pool_named(name), start=start, end=end))
    if as_json:
        print_json(found)
        return
    click.echo(f"{found.pool} from {time_words(found.start)} to {time_words(found.end)}")
    if not found.shares:
        click.echo("No task with a target ended in this time. docs/agents.md says what targets of tasks are.")
        return
    columns = ("version", "class", "turns within", "whole task within", "goal", "tasks", "in time", "broke off", "in time incl. broken off")
    print_table(columns, [_of_tasks(one) for one in found.shares])
    if found.since is not None:
        click.echo(
            f"There are very many tasks, so only the newest are judged: tasks whose last turn ended since {time_words(found.since)}."
        )


@slo.command()
@name_argument
@json_option
@url_option
@token_option
def burn(name: str, as_json: bool, url: tuple[str, ...], token: str | None) -> None:
    """Show how fast the error budget is used up: 1.0 uses the whole budget in 30 days."""
    found = ask(url, token, lambda api: api.slo_burn(pool_named(name)))
    if as_json:
        print_json(found)
        return
    unknown = "no requests" if any(one.window == "30d" for one in found.windows) else "not known, because records are not kept for 30 days"
    left = unknown if found.budget_left is None else f"{_percent(found.budget_left)} left"
    click.echo(f"{found.pool}: goal {found.percentile:g}%; error budget of 30 days: {left}")
    columns = ("last", "class", "requests", "late", "allowed", "burn", "refused", "failed", "burn of all")
    rows = [
        (
            one.window,
            one.priority_class or "all",
            f"{one.requests:,}",
            f"{one.late:,}",
            f"{one.allowed:,.1f}",
            _times(one.burn),
            f"{one.refused:,}",
            f"{one.failed:,}",
            _times(one.burn_of_all),
        )
        for one in found.windows
    ]
    print_table(columns, rows)
    for alert in found.alerts:
        state = "no requests" if alert.burning is None else "burning" if alert.burning else "no"
        click.echo(f"{alert.name}: {state} (above {alert.threshold:g} over {alert.long} and {alert.short})")


@slo.command("task-burn")
@name_argument
@json_option
@url_option
@token_option
def task_burn(name: str, as_json: bool, url: tuple[str, ...], token: str | None) -> None:
    """Show how fast the error budgets of whole tasks are used up: 1.0 uses a class's budget in 30 days."""
    found = ask(url, token, lambda api: api.slo_task_burn(pool_named(name)))
    if as_json:
        print_json(found)
        return
    if not found.budgets:
        click.echo(f"{found.pool} has no target of tasks, and no task with a target ended. docs/agents.md says what targets of tasks are.")
        return
    kept = any(one.window == "30d" for one in found.windows)
    for one in found.budgets:
        goal = "no target now" if one.percentile is None else f"goal {one.percentile:g}%"
        unknown = "no tasks seen" if kept else "not known, because tasks are not kept for 30 days"
        left = unknown if one.budget_left is None else f"{_percent(one.budget_left)} left"
        click.echo(f"{one.priority_class}: {goal}; error budget of 30 days: {left}")
    columns = ("last", "class", "tasks", "late", "allowed", "burn", "broke off", "burn of all")
    print_table(columns, [_task_window(one) for one in found.windows])


@slo.command("what-if")
@name_argument
@_ttft
@_tpot
@_percentile
@_from
@_to
@_class
@json_option
@url_option
@token_option
def what_if(
    name: str,
    ttft: str | None,
    tpot: str | None,
    percentile: float | None,
    start: str,
    end: str,
    priority_class: str | None,
    as_json: bool,
    url: tuple[str, ...],
    token: str | None,
) -> None:
    """Show how many requests of the past day would have met other targets, with their recorded latencies."""
    targets: dict[str, Any] = {"ttft": ttft, "tpot": tpot, "percentile": percentile}
    found = ask(
        url,
        token,
        lambda api: api.slo_what_if(pool_named(name), **targets, start=start, end=end, priority_class=priority_class),
    )
    if as_json:
        print_json(found)
        return
    click.echo(
        f"{found.pool} from {time_words(found.start)} to {time_words(found.end)}, with TTFT {found.ttft_seconds:g} s, "
        f"TPOT {found.tpot_seconds * 1000:g} ms, goal {found.percentile:g}%"
    )
    columns = ("class", "requests", "in time when they ran", "would have been in time", "goal", "refused", "failed")
    print_table(columns, [_other(one) for one in (*found.classes, found.whole)])
    if not found.exact:
        click.echo(
            "Latencies are recorded in steps. The numbers are exact for a target at the edge of a step, such as a round number; else estimates."
        )


@slo.command("set")
@name_argument
@_ttft
@_tpot
@_percentile
@approval_options
def change(name: str, ttft: str | None, tpot: str | None, percentile: float | None, approval: Approval) -> None:
    """Change the targets in the pool's spec, which makes a new version.

    First shows the plan, with the attainment that the past day would have had. The token needs the role admin.
    """
    given = {"ttft": ttft, "tpot": tpot, "percentile": percentile}
    fields = {target: value for target, value in given.items() if value is not None}
    if not fields:
        raise InvalidInput("targets", None, "give at least one of --ttft, --tpot and --percentile")
    plan_and_apply(pool_named(name), PlanRequest(kind=PlanKind.SLO, fields=fields), approval)


def _version(one: SloVersion) -> tuple[str, ...]:
    classes = ", ".join(f"{each.name} ({each.priority})" for each in one.classes)
    targets = (f"{one.ttft_seconds:g} s", f"{one.tpot_seconds * 1000:g} ms", f"{one.percentile:g}%")
    until = "in force" if one.active_until is None else time_words(one.active_until)
    kept = (_percent(one.attainment), f"{one.requests:,}")
    return (str(one.version), *targets, *kept, classes, time_words(one.active_from), until, one.changed_by or "")


def _share(one: SloShare) -> tuple[str, ...]:
    shares = (_percent(one.attainment), _percent(one.ttft_attainment), _percent(one.tpot_attainment))
    named = ("all" if one.version is None else str(one.version), one.priority_class or "all")
    return (*named, f"{one.requests:,}", *shares, f"{one.refused:,}", f"{one.failed:,}", _percent(one.served_in_time))


def _of_tasks(one: TaskShare) -> tuple[str, ...]:
    within = (_within(one.turn_time_seconds, one.turn_seconds), _within(one.wall_time_seconds, one.wall_seconds))
    named, counted = (str(one.version), one.priority_class), (f"{one.tasks:,}", _percent(one.attainment), f"{one.broken_off:,}")
    return (*named, *within, f"{one.percentile:g}%", *counted, _percent(one.served_in_time))


def _within(target: float | None, found: float | None) -> str:
    """Return the time target of tasks, followed in parentheses by the actual time within which the required share of
    the tasks ended; an en dash without a target.
    """
    return "–" if target is None else seconds(target) if found is None else f"{seconds(target)} ({seconds(found)})"


def _task_window(one: TaskBurnWindow) -> tuple[str, ...]:
    counts = (f"{one.tasks:,}", f"{one.late:,}", f"{one.allowed:,.1f}", _times(one.burn))
    return (one.window, one.priority_class, *counts, f"{one.broken_off:,}", _times(one.burn_of_all))


def _other(one: WhatIfShare) -> tuple[str, ...]:
    least, most = _percent(one.attainment_least), _percent(one.attainment_most)
    met = {True: "met", False: "missed", None: "not known"}[one.met]
    return (
        one.priority_class or "all",
        f"{one.requests:,}",
        _percent(one.attainment),
        least if least == most else f"{least} to {most}",
        met,
        f"{one.refused:,}",
        f"{one.failed:,}",
    )


def _percent(share: float | None) -> str:
    return "–" if share is None else percentage(share).replace(" %", "%")


def _times(burn: float | None) -> str:
    return "–" if burn is None else f"{burn:.2f}"
