"""`fairlead pools` lists and shows pools, and, through plans, rolls back to a revision, and pauses or resumes a
rollout.
"""

from collections.abc import Iterator

import click

from fairlead.capabilities import in_words
from fairlead.instances import Role
from fairlead_cli.asking import ask, token_option, url_option
from fairlead_cli.listing import List, Look, list_options, look_options, print_found, show_list, watched
from fairlead_cli.planning import Approval, approval_options, plan_and_apply
from fairlead_cli.printing import json_option, percent, print_facts, print_json, print_table, seconds, short, steps, time_words, when
from fairlead_client.resources.canaries import Canary, CanaryEstimate
from fairlead_client.resources.plan_kinds import PlanKind, PlanRequest
from fairlead_client.resources.pools import PoolDetail, PoolSummary
from fairlead_client.resources.rollouts import Rollout, TemplateRevision
from fairlead_client.resources.shadows import ShadowFigures, with_error
from fairlead_process.option_types import TimeOption
from fairlead_process.pool_names import name_argument, pool_named

COLUMNS = (
    "pool",
    "ready",
    "serving",
    "desired",
    "policy",
    "TTFT in time",
    "TTFT p95",
    "hit rate",
    "requests/s",
    "refused/s",
    "moved, 5 min",
    "model",
)

SHADOW_COLUMNS = ("shadow", "decided by", "asked", "alike", "else TTFT", "else hit", "prediction off by", "failed")


@click.group()
def pools() -> None:
    """Pools: their state and revisions; roll back to a revision, pause or resume a rollout."""


@pools.command("list")
@list_options
def list_pools(limit: int, look: Look) -> None:
    """List pools, with figures of the last five minutes."""
    listed = List(
        fetch=lambda api, query: api.pools(cursor=query["cursor"], limit=query["limit"]),
        path="/v1/pools",
        columns=COLUMNS,
        row=row,
        empty="There is no pool.",
    )
    show_list(look, listed, {}, limit)


@pools.command()
@name_argument
@look_options
def show(name: str, look: Look) -> None:
    """Show one pool: its figures, its conditions and its spec."""
    pool = pool_named(name)

    def shown(found: PoolDetail) -> None:
        if look.output == "json":
            print_found(look, found)
            return
        one = found.pool
        facts = [("TTFT SLO", seconds(one.ttft_slo_seconds)), ("goal", f"{one.slo_percentile:g}%"), ("owner", short(one.owner))]
        print_facts([*zip(COLUMNS, row(one), strict=True), *facts, ("live routers", f"{found.live_routers}")])
        click.echo()
        known = [(one.name, one.value, one.source, one.spread) for one in in_words(found.capability)]
        print_table(("an instance", "value", "source", "P10 to P90"), known)
        click.echo()
        rows = [(one.type, one.status, one.reason, when(one.since), one.message) for one in found.conditions]
        print_table(("condition", "status", "reason", "since (UTC)", "message"), rows)
        click.echo()
        print_json(found.spec)

    watched(look, lambda api: api.pool(pool), shown)


@pools.command()
@name_argument
@json_option
@url_option
@token_option
def revisions(name: str, as_json: bool, url: tuple[str, ...], token: str | None) -> None:
    """List the revisions of a pool: the engine and templates of each, and what a rollback to it would change."""
    found = ask(url, token, lambda api: api.rollout(pool_named(name)))
    if as_json:
        print_json(found)
        return
    for line in _progress(found):
        click.echo(line)
    if not found.revisions:
        click.echo("No revision is kept yet.")
        return
    for one in found.revisions:
        click.echo(f"{one.number:>4}  {time_words(one.created_at)}  {_mark(one)}".rstrip())
        for line in steps(one.diff):
            click.echo(f"    {line}")


@pools.command()
@name_argument
@json_option
@url_option
@token_option
def canary(name: str, as_json: bool, url: tuple[str, ...], token: str | None) -> None:
    """Show the steps of a pool's canaries, and the judge's verdict on each step. `pause` stops a canary, `resume`
    continues it, and `rollback` undoes the change.
    """
    found = ask(url, token, lambda api: api.canary(pool_named(name)))
    if as_json:
        print_json(found)
        return
    for line in canary_lines(found):
        click.echo(line)


@pools.command()
@name_argument
@click.option("--from", "start", type=TimeOption(), default="now-1d", show_default=True, help="Begin: RFC 3339, or as now-6h.")
@click.option("--to", "end", type=TimeOption(), help="End, in the same form; default: now.")
@json_option
@url_option
@token_option
def shadows(name: str, start: str, end: str | None, as_json: bool, url: tuple[str, ...], token: str | None) -> None:
    """Show the decisions of the policies that only advise: how often they chose the same instance as the pool's policy,
    and the predicted difference where they chose another. JSON also has these figures by hour.
    """
    found = ask(url, token, lambda api: api.shadows(pool_named(name), start=start, end=end))
    if as_json:
        print_json(found)
        return
    if not found.policies:
        click.echo("No shadow policy was evaluated in this time. spec.routing.shadows names the policies that only advise.")
        return
    print_table(SHADOW_COLUMNS, [_shadow(one) for one in found.policies])
    click.echo("Predicted by the router's formula: no engine got the requests that a shadow would have sent elsewhere.")


@pools.command()
@name_argument
@list_options
def history(name: str, limit: int, look: Look) -> None:
    """List the revisions of a pool's whole spec: who changed what; `fairlead change revert` restores one."""
    pool = pool_named(name)
    listed = List(
        fetch=lambda api, query: api.revisions(pool, cursor=query["cursor"], limit=query["limit"]),
        path=f"/v1/pools/{pool.namespace}/{pool.name}/revisions",
        columns=("revision", "at (UTC)", "by", "reason", "what changed"),
        row=lambda one: (f"{one.number}", when(one.at), one.actor, short(one.reason), "\n".join(line.strip() for line in steps(one.diff))),
        empty="The operator has not reported this pool's spec yet.",
    )
    show_list(look, listed, {}, limit)


@pools.command()
@name_argument
@click.option("--to", "revision", type=click.IntRange(1), help="Number of the revision; default: the newest that differs from the spec.")
@click.option("--role", type=click.Choice([role.value for role in Role]), help="Roll back only this role's template, not the engine.")
@approval_options
def rollback(name: str, revision: int | None, role: str | None, approval: Approval) -> None:
    """Write the engine and templates of an earlier revision into the pool's spec, as `kubectl rollout undo` does.

    Shows the plan with its effect first. The token needs the role operator.
    """
    request = PlanRequest(kind=PlanKind.ROLLBACK, revision=revision, role=Role(role) if role is not None else None)
    plan_and_apply(pool_named(name), request, approval)


@pools.command()
@name_argument
@approval_options
def pause(name: str, approval: Approval) -> None:
    """Pause a pool's rollout, so that outdated instances are not replaced. Writes `rollout.paused`, as `kubectl rollout
    pause` does.

    Shows the plan with its effect first. The token needs the role operator.
    """
    plan_and_apply(pool_named(name), PlanRequest(kind=PlanKind.ROLLOUT, fields={"paused": True}), approval)


@pools.command()
@name_argument
@approval_options
def resume(name: str, approval: Approval) -> None:
    """Resume a paused rollout. A rollout that was stopped because of a regression continues when it is paused and
    resumed; it is then judged again. Shows the plan with its effect first. The token needs the role operator.
    """
    plan_and_apply(pool_named(name), PlanRequest(kind=PlanKind.ROLLOUT, fields={"paused": False}), approval)


def canary_lines(found: Canary) -> Iterator[str]:
    """Yield a line for each step of the canary, and after it a line for each metric of the step."""
    if not found.steps:
        yield "No canary yet."
    for step in found.steps:
        look = step.looks[0] if step.looks else None
        said = f"{look.verdict}: {look.reason}" if look else "no session has been judged yet"
        yield f"{100 * step.share:.0f} % of the sessions since {time_words(step.began_at)}: {said}"
        if look and look.late_requests:
            yield f"    {look.late_requests:,} requests were reported too late to count"
        for one in look.estimates if look else ():
            yield f"    {one.metric:<7} {_estimated(one) if one.pairs else 'not measured'}"


def _estimated(one: CanaryEstimate) -> str:
    low, high = ("?" if bound is None else f"{100 * bound:+.0f}" for bound in (one.low, one.high))
    unit = "%" if one.is_ratio else "points"
    return f"{100 * one.change:+.0f} {unit}, between {low} and {high}; {one.pairs} pairs, {one.verdict}"


def _shadow(one: ShadowFigures) -> tuple[str, ...]:
    """Return the table cells of one shadow policy, in the order of SHADOW_COLUMNS."""
    return (
        one.policy,
        one.decided_by,
        f"{one.asked:,}",
        percent(one.alike / one.asked),
        with_error(one.ttft_change_seconds, one.ttft_error_seconds, "s", 3),
        with_error(one.hit_change_tokens, one.hit_error_tokens, "tokens", 0),
        seconds(one.off_seconds),
        f"{one.failed:,}",
    )


def row(one: PoolSummary) -> tuple[str, ...]:
    """Return the table cells of one pool, in the order of COLUMNS."""
    return (
        f"{one.namespace}/{one.name}",
        "yes" if one.ready else one.ready_reason,
        f"{one.serving}",
        f"{one.desired}",
        one.policy,
        percent(one.attainment),
        seconds(one.ttft_p95_seconds),
        percent(one.hit_rate),
        "-" if one.requests_per_second is None else f"{one.requests_per_second:.2f}",
        f"{one.rejections_per_second:.2f}",
        f"{one.sessions_moved}",
        one.model,
    )


def _progress(found: Rollout) -> list[str]:
    updated = ", ".join(f"{one.role.value} {one.updated} of {one.desired}" for one in found.roles)
    words = f"{found.reason}: {found.message}" if found.reason else "The operator has not reported on this pool."
    return [words, *([f"Instances with the present template: {updated}."] if updated else [])]


def _mark(one: TemplateRevision) -> str:
    marks = (("in force", one.in_force), ("last completed", one.completed))
    return ", ".join(words for words, holds in marks if holds)
