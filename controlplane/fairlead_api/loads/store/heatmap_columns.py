"""Columns of heatmaps, stored with all instances of a pool in one database row. A row is written when its bucket is
rolled up, and a heatmap reads hundreds of rows at once.

A heatmap of 512 instances in 360 columns has 184,000 cells. In the rollups of instances, each cell is a row. In the
rows of this module, each cell is an item of a list that Postgres returns unchanged.
"""

# ruff: noqa: S608 (statements are put together from this module's own constants; values are always bound)

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead_api.loads.heatmaps import Grid, Slice
from fairlead_client.resources.heatmaps import METRICS

LENGTHS = {1: 10, 10: 10, 60: 60, 300: 300}
"""Seconds that a stored row covers, by the row's step in seconds."""

MOST_GAPS = 8
"""Maximum number of gaps between stored columns that are read from rollups one by one. If there are more, one read
covers all columns from the first to the last gap.
"""

_PARTS = ("max", "sum", "n")
_NAMES = [f"{metric}_{part}" for metric in METRICS for part in _PARTS]
_REPLACED = ", ".join(f"{name} = excluded.{name}" for name in ("roster", "instances", *_NAMES))
_values = msgspec.json.Decoder(list[int | float | None])
"""Decodes a metric's values. Whole numbers are decoded as integers, because 184,000 integers are written as JSON in 2
ms and as many floats in 11 ms.
"""
_seconds = msgspec.json.Decoder(list[int])
_names = msgspec.json.Decoder(list[str])


def _stored(step: int, lists: str, names: Iterable[str]) -> str:
    """Return the SQL statement that stores one row. `lists` is SQL that selects `instances` and the columns `names`, or
    no row if there is no data.
    """
    columns = ", ".join(names)
    return (
        f"INSERT INTO heatmap_columns (pool_id, step, bucket, roster, instances, {columns}) "
        f"SELECT :pool, {step}, :start, md5(CAST(instances AS text)), instances, {columns} FROM ({lists}) made "
        f"ON CONFLICT (pool_id, step, bucket) DO UPDATE SET {_REPLACED}"
    )


def _lists(metric: str, parts: Iterable[str] = _PARTS) -> str:
    return ", ".join(
        f"CASE WHEN count({metric}_max) > 0 THEN array_to_json(array_agg({metric}_{part})) END AS {metric}_{part}" for part in parts
    )


def _of(cells: str) -> str:
    """Return SQL that makes one list for each metric. Its source `cells` is SQL for a table of cells that is sorted by
    instance.
    """
    return (
        f"SELECT array_to_json(array_agg(instance)) AS instances, {', '.join(map(_lists, METRICS))} FROM "
        f"({cells}) cells HAVING count(*) > 0"
    )


_BETWEEN = "WHERE pool_id = :pool AND bucket >= :start AND bucket < :end"
_MERGED = ", ".join(
    f"max({metric}_max) AS {metric}_max, sum({metric}_sum) AS {metric}_sum, sum({metric}_n) AS {metric}_n" for metric in METRICS
)
MAKE = {
    10: _stored(10, _of(f"SELECT instance, {', '.join(_NAMES)} FROM load_rollups_10s {_BETWEEN} ORDER BY instance"), _NAMES),
    60: _stored(60, _of(f"SELECT instance, {', '.join(_NAMES)} FROM load_rollups_1m {_BETWEEN} ORDER BY instance"), _NAMES),
    300: _stored(300, _of(f"SELECT instance, {_MERGED} FROM load_rollups_1m {_BETWEEN} GROUP BY instance ORDER BY instance"), _NAMES),
}
"""SQL statements that make one row from rollups, by step."""

_CELLS = ", ".join(f"max({metric}) AS {metric}_max" for metric in METRICS)
SECONDS = f""", names AS (
  SELECT DISTINCT instance FROM per_second
), every_second AS (
  SELECT second, instance, {", ".join(METRICS)} FROM per_second
  UNION ALL
  SELECT t.second, n.instance, {", ".join("NULL" for _ in METRICS)}
  FROM names n CROSS JOIN generate_series(CAST(:start AS timestamptz), :end - interval '1 second', '1 second') AS t(second)
), cells AS (
  SELECT {_CELLS} FROM every_second GROUP BY second, instance ORDER BY second, instance
), kept AS (
  {
    _stored(
        1,
        "SELECT (SELECT array_to_json(array_agg(instance ORDER BY instance)) FROM names) AS instances, "
        + ", ".join(_lists(metric, ("max",)) for metric in METRICS)
        + " FROM cells HAVING count(*) > 0",
        [f"{metric}_max" for metric in METRICS],
    )
}
)
"""
"""SQL that stores the single seconds of a bucket. It continues a statement that has already defined `per_second` for
this bucket.
"""


async def make_columns(connection: AsyncConnection, buckets: Iterable[tuple[int, datetime]]) -> None:
    """Write heatmap columns from rollups: for each of the `buckets` of 10 s (a pool's id and a time), and for the
    minutes and five minutes that contain it.
    """
    found = sorted(set(buckets))
    for step, statement in MAKE.items():
        for pool, at in sorted({(pool, _down(at, step)) for pool, at in found}):
            await connection.execute(text(statement), {"pool": pool, "start": at, "end": at + timedelta(seconds=step)})


async def read_columns(
    connection: AsyncConnection, pool: int, metric: str, where: Grid, *, mean: bool
) -> tuple[list[Slice], list[tuple[datetime, datetime]]]:
    """Return the stored columns, and the ranges of time of the grid for which none are stored.

    Columns are missing for the newest seconds, which are not rolled up yet, and for seconds that an older release
    without such columns rolled up. The caller reads those ranges from samples and rollups. `metric` is one of METRICS.
    """
    if metric not in METRICS:
        raise ValueError(f"{metric!r} is not a metric")
    step = max(one for one in LENGTHS if one <= where.step)
    length = LENGTHS[step]
    start, end = int(where.start.timestamp()), int(where.end.timestamp())
    first = start - start % length
    parts = ("sum", "n") if mean and step > 1 else ("max",)
    query = f"""
SELECT CAST(extract(epoch FROM bucket) AS bigint), roster, CASE WHEN place = 1 THEN CAST(instances AS text) END,
  {", ".join(f"CAST({metric}_{part} AS text)" for part in parts)}
FROM (
  SELECT *, row_number() OVER (PARTITION BY roster ORDER BY bucket) AS place FROM heatmap_columns
  WHERE pool_id = :pool AND step = :step AND bucket >= :first AND bucket < :end
) found ORDER BY bucket
"""
    values = {"pool": pool, "step": step, "first": datetime.fromtimestamp(first, UTC), "end": where.end}
    rows = (await connection.execute(text(query), values)).all()
    rosters = {roster: _names.decode(instances) for _, roster, instances, *_ in rows if instances is not None}
    missing = sorted(set(range(first, end, length)) - {row[0] for row in rows})
    gaps = _gaps(missing, length)
    if len(gaps) > MOST_GAPS:
        gaps = [(gaps[0][0], gaps[-1][1])]
        rows = [row for row in rows if not gaps[0][0] <= row[0] < gaps[0][1]]
    slices: list[Slice] = []
    for at, roster, _, *lists in rows:
        if lists[0] is None:
            continue
        instances, found = rosters[roster], _values.decode(lists[0])
        if step > 1:
            seconds = _seconds.decode(lists[1]) if mean else ()
            slices.append(Slice(column=(at - start) // where.step, instances=instances, values=found, seconds=seconds))
            continue
        for number in range(length):
            cells = found[number * len(instances) : (number + 1) * len(instances)]
            if start <= at + number < end:
                known = [0 if cell is None else 1 for cell in cells] if mean else ()
                slices.append(Slice(column=(at + number - start) // where.step, instances=instances, values=cells, seconds=known))
    return slices, [(datetime.fromtimestamp(max(a, start), UTC), datetime.fromtimestamp(min(b, end), UTC)) for a, b in gaps]


def _gaps(missing: list[int], length: int) -> list[tuple[int, int]]:
    """Return the ranges of the missing buckets, with adjacent buckets joined."""
    found: list[tuple[int, int]] = []
    for at in missing:
        if found and found[-1][1] == at:
            found[-1] = (found[-1][0], at + length)
        else:
            found.append((at, at + length))
    return found


def _down(at: datetime, step: int) -> datetime:
    seconds = int(at.timestamp())
    return datetime.fromtimestamp(seconds - seconds % step, UTC)
