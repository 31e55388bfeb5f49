"""Rollups of moves: minutes from the rows of migrations and re-routes, hours from minutes, and sums of both.

What a move won becomes known after it was recorded, so a minute can change at any time. Each change queues its minute,
by a trigger of the database, until it is computed again. A sum over a range takes the minutes that are queued from
their rows instead of their rollups: in one statement, so that it is exact at every moment, however far the job is.
"""

# ruff: noqa: S608 (statements are put together from this module's own constants; values are always bound)

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from sqlalchemy import TextClause, text
from sqlalchemy.ext.asyncio import AsyncConnection

AT_ONCE = 500
"""Minutes, over all pools, computed in one transaction."""
COLUMNS = ("migrations", "reroutes", "compared", "seconds_won")
_WON = "m.predicted_source_ttft_seconds - m.actual_ttft_seconds"


def _rows(pool: str, minute: str) -> str:
    """The sums of one minute from its rows, as columns of COLUMNS."""
    within = f"m.pool_id = {pool} AND m.at >= {minute} AND m.at < {minute} + interval '1 minute'"
    return (
        f"SELECT migrations, reroutes, compared, seconds_won FROM (SELECT count(*) AS migrations, count({_WON}) AS compared, "
        f"coalesce(sum({_WON}), 0) AS seconds_won FROM migrations m WHERE {within}) migrated, "
        f"(SELECT count(*) AS reroutes FROM reroutes m WHERE {within}) rerouted"
    )


def within(base: str) -> str:
    """A query for the moves of `:pools` from `:start` to `:end`, whole minutes (`base` `1m`) or hours (`1h`).

    Its rows have pool_id, a time `at` in their bucket, and COLUMNS, which are to be summed: a minute that changed since
    it was rolled up has what its rollup says in negative, and what its rows say.
    """
    rolled = ", ".join(f"r.{name}" for name in COLUMNS)
    negative = ", ".join(f"-r.{name}" for name in COLUMNS)
    return (
        "WITH changed AS MATERIALIZED (SELECT DISTINCT pool_id, minute FROM move_rollup_queue "
        "WHERE pool_id = ANY(:pools) AND minute >= :start AND minute < :end) "
        f"SELECT r.pool_id, r.bucket AS at, {rolled} FROM move_rollups_{base} r "
        "WHERE r.pool_id = ANY(:pools) AND r.bucket >= :start AND r.bucket < :end "
        f"UNION ALL SELECT c.pool_id, c.minute, {negative} FROM changed c, LATERAL "
        "(SELECT * FROM move_rollups_1m o WHERE o.pool_id = c.pool_id AND o.bucket = c.minute) r "
        f"UNION ALL SELECT c.pool_id, c.minute, {rolled} FROM changed c, LATERAL ({_rows('c.pool_id', 'c.minute')}) r"
    )


TAKE = text("""
WITH due AS (SELECT DISTINCT pool_id, minute FROM move_rollup_queue WHERE minute + interval '1 minute' <= :ended ORDER BY minute LIMIT :most)
DELETE FROM move_rollup_queue q USING due WHERE q.pool_id = due.pool_id AND q.minute = due.minute RETURNING q.pool_id, q.minute
""")
"""Takes `:most` minutes that ended by `:ended` out of the queue."""
_KEYS = "unnest(CAST(:pools AS integer[]), CAST(:buckets AS timestamptz[])) AS k (pool, bucket)"


def _upsert(target: str, source: str) -> str:
    replaced = ", ".join(f"{name} = excluded.{name}" for name in COLUMNS)
    return (
        f"INSERT INTO {target} (pool_id, bucket, {', '.join(COLUMNS)}) SELECT k.pool, k.bucket, {', '.join(f'r.{name}' for name in COLUMNS)} "
        f"FROM {_KEYS}, LATERAL ({source}) r ON CONFLICT (pool_id, bucket) DO UPDATE SET {replaced}"
    )


_SUMS = ", ".join(f"sum({name}) AS {name}" for name in COLUMNS)
_TO_1M = text(_upsert("move_rollups_1m", _rows("k.pool", "k.bucket")))
_TO_1H = text(
    _upsert(
        "move_rollups_1h",
        f"SELECT {_SUMS} FROM move_rollups_1m m WHERE m.pool_id = k.pool AND m.bucket >= k.bucket AND m.bucket < k.bucket + interval '1 hour'",
    )
)


async def roll_up_moves(connection: AsyncConnection, ended: datetime) -> int:
    """Computes queued minutes that ended by then again, and their hours, in one transaction; returns how many minutes.

    The queue is emptied first and the rows are read after it, so a change that is committed between the two is counted
    and stays queued.
    """
    minutes = {(row.pool_id, row.minute) for row in await connection.execute(TAKE, {"ended": ended, "most": AT_ONCE})}
    for statement, values in computing(minutes):
        await connection.execute(statement, values)
    return len(minutes)


def computing(minutes: Iterable[tuple[int, datetime]]) -> Iterator[tuple[TextClause, dict[str, list[object]]]]:
    """The statements, with their values, that compute minutes by pool and the hours that they are in."""
    found = set(minutes)
    for statement, buckets in ((_TO_1M, found), (_TO_1H, {(pool, at - timedelta(minutes=at.minute)) for pool, at in found})):
        if buckets:
            ordered = sorted(buckets)
            yield statement, {"pools": [pool for pool, _ in ordered], "buckets": [at for _, at in ordered]}
