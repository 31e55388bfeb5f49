"""`kubectl fairlead status`: all pools in a line each, or one pool at a glance."""

from typing import Any

import click

from fairlead.tables import PoolKey
from fairlead_cli.instances import COLUMNS as INSTANCE_COLUMNS
from fairlead_cli.instances import row as instance_row
from fairlead_cli.listing import Look, look_options, print_found, watched
from fairlead_cli.pools import COLUMNS as POOL_COLUMNS
from fairlead_cli.pools import row as pool_row
from fairlead_cli.printing import percent, print_table, seconds, when
from fairlead_client.client import ControlApi
from fairlead_client.resources.advice import AdviceReport
from fairlead_client.resources.instances import InstanceSummary
from fairlead_client.resources.pools import PoolDetail, PoolSummary
from fairlead_process.pool_names import pool_argument

MOST_SHOWN = 100
"""Maximum number of pools, or of one pool's instances, that are shown."""


@click.command()
@pool_argument
@look_options
def status(pool: str | None, look: Look) -> None:
    """Show all pools, one line each; or one pool: whether it meets its objectives, its problems, and each of its
    instances.
    """
    if pool is None:
        watched(look, _all, lambda found: _show_all(found, look))
    else:
        key = PoolKey.parse(pool)
        watched(look, lambda api: _glance(api, key), lambda found: _show(found, look))


async def _all(api: ControlApi) -> list[PoolSummary]:
    return (await api.pools(limit=MOST_SHOWN)).items


def _show_all(found: list[PoolSummary], look: Look) -> None:
    if look.output == "json":
        print_found(look, found)
    elif found:
        print_table(POOL_COLUMNS, [pool_row(one) for one in found])
    else:
        click.echo("There is no pool.")


async def _glance(api: ControlApi, key: PoolKey) -> tuple[PoolDetail, list[InstanceSummary], AdviceReport]:
    return await api.pool(key, instances=False), (await api.instances(key, limit=MOST_SHOWN)).items, await api.advice(key)


def _show(found: tuple[PoolDetail, list[InstanceSummary], AdviceReport], look: Look) -> None:
    detail, instances, advice = found
    if look.output == "json":
        print_found(look, {"pool": detail.pool, "conditions": detail.conditions, "instances": instances, "advice": advice.items})
        return
    for line in _lines(detail, advice):
        click.echo(line)
    if instances:
        click.echo()
        print_table(INSTANCE_COLUMNS, [instance_row(one) for one in instances])


def _lines(detail: PoolDetail, advice: AdviceReport) -> list[str]:
    one = detail.pool
    ready = "ready" if one.ready else f"not ready ({one.ready_reason}: {one.ready_message})"
    kept = f"{percent(one.slo_attainment)} in time of a goal of {one.slo_percentile:g}%"
    traffic = "unknown" if one.requests_per_second is None else f"{one.requests_per_second:.2f} requests/s"
    asleep = f", {one.asleep} asleep" if one.asleep else ""
    lines = [
        f"{one.namespace}/{one.name}: {ready}, {one.serving} of {one.desired} serving, {one.draining} draining{asleep}, policy {one.policy}",
        f"last 5 minutes: {traffic}, {kept}, TTFT p95 {seconds(one.ttft_p95_seconds)} of {seconds(one.ttft_slo_seconds)}, "
        f"hit rate {percent(one.hit_rate)}, {one.rejections_per_second:.2f} refused/s, {one.sessions_moved} sessions moved",
        *(
            f"{own.type} is {own.status} since {when(own.since)} UTC: {own.reason}: {own.message}"
            for own in detail.conditions
            if _is_bad(own)
        ),
    ]
    program = click.get_current_context().find_root().info_name
    count = len(advice.items)
    if count:
        lines.append(f"{count} finding{'' if count == 1 else 's'}: {program} why {one.namespace}/{one.name}")
    return lines


def _is_bad(condition: Any) -> bool:
    is_unready = condition.type == "Ready" and condition.status != "True"
    return bool(is_unready or (condition.type == "HasDevices" and condition.status == "False"))
