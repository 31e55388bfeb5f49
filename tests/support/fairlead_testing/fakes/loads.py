"""Made-up load of two pools, second by second, and heatmaps of it. Everything follows from names and times, so tests can compute it too."""

import hashlib
import math
from collections.abc import Sequence
from datetime import datetime

from fairlead.reports import BindingReason
from fairlead_client.resources.heatmaps import METRICS, Heatmap, HeatmapMigration, HeatmapRow
from fairlead_client.resources.instances import InstanceSummary
from fairlead_client.resources.moves import Migration

CHAT, CODE = "default/chat", "research/code"
HOSTILE = "<img src=x onerror=alert(1)>"
SLO_TTFT = {CHAT: 5.0, CODE: 2.5}
TRIGGERS = tuple(map(BindingReason, ("hot-migration", "hot-migration", "hotspot", "slo", "drain")))
LIMITS = {"kv_usage": 0.9, "ttft_p95": 5.0, "tpot_p95": 0.1}


def name_suffix(seed: str) -> str:
    alphabet = "bcdfghjklmnpqrstvwxz2456789"
    digest = hashlib.sha256(seed.encode()).digest()
    return "".join(alphabet[byte % len(alphabet)] for byte in digest[:5])


INSTANCES = {CHAT: [f"chat-b{name_suffix(f'chat{i}')}" for i in range(8)], CODE: [f"code-b{name_suffix(f'code{i}')}" for i in range(4)]}


def noise(*parts: object) -> float:
    """A number in 0-1 that depends on the parts only."""
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=4).digest(), "big") / 2**32


def cell(pool: str, instance: str, metric: str, second: float) -> float | None:
    """Load of one instance around one moment; None where the instance had not started yet."""
    index = INSTANCES[pool].index(instance)
    minute = second / 60
    if index == 6 and minute % 60 < 9:
        return None
    wave = 0.5 + 0.5 * math.sin(minute / 7 + index * 1.7)
    burst = 1.0 if 24 < (minute % 60) < 33 else 0.0
    hot = 0.45 if index in (1, 4) and math.sin(minute / 11 + index) > 0.1 else 0.0
    load = min(1.25, 0.12 + 0.3 * wave + 0.35 * burst + hot + 0.15 * noise(instance, metric, int(second // 10)))
    match metric:
        case "pending_prefill_tokens":
            return float(round(load * 42000))
        case "kv_usage":
            return round(min(0.999, 0.25 + load * 0.55), 4)
        case "ttft_p95":
            return round(0.25 + load * load * 4.6, 4)
        case "tpot_p95":
            return round(0.021 + load * 0.055, 5)
        case "hit_rate":
            return round(max(0.05, 0.82 - load * 0.3), 4)
        case "requests":
            return round(load * 3.1, 2)
        case "failed":
            return 0.0 if load < 1.1 else 0.1
        case "running":
            return float(round(load * 24))
        case "in_flight":
            return float(round(load * 31))
        case _:
            return float(round(max(0.0, load - 0.6) * 18))


def arrows(moves: Sequence[Migration], first: float, step: int) -> list[HeatmapMigration]:
    """Migrations by column and pair, oldest first; the newest gives its name."""
    groups: dict[tuple[int, str, str], list[Migration]] = {}
    for move in sorted(moves, key=lambda one: one.at, reverse=True):
        groups.setdefault((int((move.at.timestamp() - first) // step), move.source, move.target), []).append(move)
    found = [
        HeatmapMigration(id=group[0].id, at=group[0].at, source=source, target=target, trigger=group[0].trigger, count=len(group))
        for (_, source, target), group in groups.items()
    ]
    return sorted(found, key=lambda one: one.at)


def heatmap_of(
    pool: str,
    metric: str,
    start: datetime,
    end: datetime,
    columns: int,
    aggregate: str,
    sort: str,
    instances: Sequence[InstanceSummary],
    migrations: Sequence[Migration],
) -> Heatmap:
    """The heatmap the API would answer with."""
    seconds = (end - start).total_seconds()
    step = max(1, math.ceil(seconds / columns))
    step = next((nice for nice in (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600) if nice >= step), step)
    first = start.timestamp() // step * step
    count = max(1, math.ceil((end.timestamp() - first) / step))
    limit = SLO_TTFT[pool] if metric == "ttft_p95" else LIMITS.get(metric)
    rows = []
    for one in instances:
        samples: list[float | None] = []
        for column in range(count):
            inside = [cell(pool, one.id, metric, first + column * step + step * part / 4) for part in range(4)]
            known = [value for value in inside if value is not None]
            samples.append(None if not known else max(known) if aggregate == "max" else sum(known) / len(known))
        breaches = [] if limit is None else [column for column, value in enumerate(samples) if value is not None and value > limit]
        rows.append(HeatmapRow(instance=one.id, state=one.state, role=one.role, values=samples, breaches=breaches))
    if sort == "max":
        rows.sort(key=lambda row: -max((value for value in row.values if value is not None), default=0.0))
    elif sort == "latest":
        rows.sort(key=lambda row: -(row.values[-1] or 0.0))
    top = max((value for row in rows for value in row.values if value is not None), default=1.0)
    moves = [move for move in migrations if move.pool == pool and start <= move.at < end]
    return Heatmap(
        pool=pool,
        metric=metric,
        unit=METRICS[metric],
        aggregate=aggregate,
        scale="relative" if limit is None else "absolute",
        start=datetime.fromtimestamp(first, tz=start.tzinfo),
        step_seconds=step,
        columns=count,
        maximum=1.0 if METRICS[metric] == "share" else max(top, limit or 0.0),
        limit=limit,
        rows=rows,
        migrations=arrows(moves, first, step),
        migrations_total=len(moves),
    )
