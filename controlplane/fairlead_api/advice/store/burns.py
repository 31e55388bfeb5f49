"""The alerts on error budgets that are on, of many pools at once."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.advice.situations import SeenBurn
from fairlead_api.advice.store.statements import HOURS, MINUTES, PERCENTILES
from fairlead_api.slo.budgets import ALERTS, WINDOWS, Counts, Kept, alerts, burn_window
from fairlead_api.slo.reading import stretch_of

_BY_MINUTES = tuple(sorted({name for alert in ALERTS for name in (alert.long, alert.short)} - {"3d"}, key=WINDOWS.__getitem__))


async def burns_of(
    connection: AsyncConnection, pools: Sequence[int], percentiles_now: Mapping[int, float], now: datetime
) -> dict[int, tuple[SeenBurn, ...]]:
    """By pool. The windows begin where those of the pool's SLO page do."""
    starts = {name: _start(name, now) for name in _BY_MINUTES}
    values = {"pools": pools, "names": list(starts), "starts": list(starts.values()), "earliest": min(starts.values())}
    kept: dict[tuple[int, str], list[Kept]] = defaultdict(list)
    for row in await connection.execute(MINUTES, values):
        kept[row.pool_id, row.window].append(_kept(row.slo_version, row.judged, row.within_slo))
    for row in await connection.execute(HOURS, {"pools": pools, "start": _start("3d", now)}):
        kept[row.pool_id, "3d"].append(_kept(row.slo_version, row.judged, row.within_slo))
    of_versions: dict[int, dict[int, float]] = defaultdict(dict)
    for row in await connection.execute(PERCENTILES, {"pools": pools}):
        of_versions[row.pool_id][row.version] = row.percentile
    found = {}
    for pool in pools:
        windows = {name: burn_window(name, None, kept[pool, name], of_versions[pool]) for name in (*_BY_MINUTES, "3d")}
        found[pool] = tuple(
            SeenBurn(
                name=alert.name,
                seconds=float(windows[alert.long].seconds),
                burn=windows[alert.long].burn or 0.0,
                threshold=alert.threshold,
                excess_per_second=max(0.0, windows[alert.long].late - windows[alert.long].allowed) / windows[alert.long].seconds,
            )
            for alert in alerts(windows.values(), percentiles_now[pool])
            if alert.burning
        )
    return found


def _start(window: str, now: datetime) -> datetime:
    return stretch_of(now - timedelta(seconds=WINDOWS[window]), now, now).start


def _kept(version: int, judged: int, within: int) -> Kept:
    return Kept(version=version, priority_class="", counts=Counts(judged=judged, within_slo=within))
