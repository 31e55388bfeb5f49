"""The made-up load of two pools, second by second, and its heatmaps.

All values follow from names and times, so that a test can compute the values that it expects.
"""

import hashlib
import math
from collections.abc import Sequence
from datetime import datetime

from fairlead.instances import InstanceState
from fairlead.reports.bindings import BindingReason
from fairlead.tables import SloFacts
from fairlead_api.loads.heatmaps import Limits, Place, Slice, grid, heatmap
from fairlead_client.resources.heatmaps import Heatmap, HeatmapMigration
from fairlead_client.resources.instances import InstanceSummary
from fairlead_client.resources.moves import Migration

CHAT, CODE = "default/chat", "research/code"
HOSTILE = "<img src=x onerror=alert(1)>"
SLO_TTFT = {CHAT: 5.0, CODE: 2.5}
PREFILL_SPEED = 7000.0
"""Prefilled tokens per second: 35,000 tokens fit the TTFT target of the pool `chat`, and its cells reach 52,500."""
TRIGGERS = tuple(map(BindingReason, ("hot-migration", "hot-migration", "hotspot", "slo", "drain")))


def name_suffix(seed: str) -> str:
    alphabet = "bcdfghjklmnpqrstvwxz2456789"
    digest = hashlib.sha256(seed.encode()).digest()
    return "".join(alphabet[byte % len(alphabet)] for byte in digest[:5])


INSTANCES = {CHAT: [f"chat-b{name_suffix(f'chat{i}')}" for i in range(8)], CODE: [f"code-b{name_suffix(f'code{i}')}" for i in range(4)]}


def noise(*parts: object) -> float:
    """Return a number in 0-1 that depends only on the parts."""
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=4).digest(), "big") / 2**32


def cell(pool: str, instance: str, metric: str, second: float) -> float | None:
    """Return the load of an instance at a second; None if the instance had not started yet."""
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
    """Return migrations grouped by column and by source and target, oldest first. A group has the id of its newest
    migration.
    """
    groups: dict[tuple[int, str, str], list[Migration]] = {}
    for move in sorted(moves, key=lambda one: one.at, reverse=True):
        groups.setdefault((int((move.at.timestamp() - first) // step), move.source, move.target), []).append(move)
    found = [
        HeatmapMigration(id=group[0].id, at=group[0].at, source=source, target=target, trigger=group[0].trigger, count=len(group))
        for (_, source, target), group in groups.items()
    ]
    return sorted(found, key=lambda one: one.at)


def limits_of(pool: str) -> Limits:
    """Return the limits of an instance whose prefill speed was measured."""
    return Limits(slo=SloFacts(ttft_seconds=SLO_TTFT[pool], tpot_seconds=0.1), prefill_speed=PREFILL_SPEED)


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
    group: str = "instance",
) -> Heatmap:
    """Return the heatmap that the API would answer: made-up cells, four values a column, arranged by the API's own
    code.
    """
    where = grid(start, end, columns)
    first = where.start.timestamp()
    slices = []
    for one in instances:
        for column in range(where.columns):
            inside = [cell(pool, one.id, metric, first + column * where.step + where.step * part / 4) for part in range(4)]
            known = [value for value in inside if value is not None]
            if known and one.state is not InstanceState.ASLEEP:
                values, seconds = ([max(known)], []) if aggregate == "max" else ([sum(known)], [len(known)])
                slices.append(Slice(column=column, instances=[one.id], values=values, seconds=seconds))
    moves = [move for move in migrations if move.pool == pool and start <= move.at < end]
    places = {one.id: Place(state=one.state, role=one.role, node=one.node) for one in instances}
    return heatmap(
        pool, metric, aggregate, sort, where, slices, places, limits_of(pool), arrows(moves, first, where.step), len(moves), group
    )
