"""The decisions that shadow policies would have made, although they do not decide where requests are sent: sums over
the decisions for which shadow policies were evaluated.

Shadow policies are evaluated for a sample that does not depend on how a request ends, so each row counts once, whatever
the `sample_rate` of its decision. Requests of one session resemble each other, so standard errors are computed from
sums by session.
"""

from datetime import datetime
from math import sqrt
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.tables import PoolKey
from fairlead_api.infra.database import Database
from fairlead_api.infra.pool_rows import pool_row
from fairlead_client.resources.shadows import ShadowFigures, ShadowHour, ShadowReport

MOST_READ = 50_000
"""Maximum number of decisions that are summed; the newest are used."""

_SUMS = """
WITH newest AS (
  SELECT at, policy AS decided_by, coalesce(session, request) AS who, shadows,
    CASE WHEN served_by = chosen AND served_by_rank IS NOT DISTINCT FROM chosen_rank THEN ttft_seconds END AS ttft_seconds
  FROM decisions WHERE pool_id = :pool AND at >= :start AND at < :end AND shadows IS NOT NULL ORDER BY at DESC LIMIT :most
), answers AS (
  SELECT {hour} AS hour, decided_by, who, one.policy, one.target IS NULL AS failed, one.alike,
    one.target IS NOT NULL AND NOT one.alike AS differs, predicted_ttft_seconds - chosen_ttft_seconds AS ttft,
    hit_tokens - chosen_hit_tokens AS hits, CASE WHEN one.target IS NOT NULL THEN abs(ttft_seconds - chosen_ttft_seconds) END AS off
  FROM newest, jsonb_to_recordset(shadows) AS one(policy text, target text, alike boolean, predicted_ttft_seconds float8,
    hit_tokens float8, chosen_ttft_seconds float8, chosen_hit_tokens float8)
), sessions AS (
  SELECT hour, decided_by, policy, who, count(*) AS asked, count(*) FILTER (WHERE failed) AS failed, count(*) FILTER (WHERE alike) AS alike,
    count(*) FILTER (WHERE differs) AS n, coalesce(sum(ttft) FILTER (WHERE differs), 0) AS ttft,
    coalesce(sum(hits) FILTER (WHERE differs), 0) AS hits, sum(off) AS off, count(off) AS offs
  FROM answers GROUP BY hour, decided_by, policy, who
)
SELECT hour, decided_by, policy, sum(asked)::bigint AS asked, sum(failed)::bigint AS failed, sum(alike)::bigint AS alike,
  sum(n)::float8 AS n, count(*) FILTER (WHERE n > 0) AS sessions, sum((n * n)::float8) AS n_n,
  sum(ttft) AS ttft, sum(ttft * ttft) AS ttft_ttft, sum(ttft * n) AS ttft_n,
  sum(hits) AS hits, sum(hits * hits) AS hits_hits, sum(hits * n) AS hits_n, sum(off) / nullif(sum(offs), 0)::float8 AS off
FROM sessions GROUP BY hour, decided_by, policy ORDER BY hour DESC, decided_by, policy
"""
_IN_ALL, _BY_HOUR = (text(_SUMS.format(hour=hour)) for hour in ("CAST(NULL AS timestamptz)", "date_trunc('hour', at, 'UTC')"))


class PostgresShadows:
    """Reads the decisions of shadow policies for the public API."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def report(self, pool: PoolKey, start: datetime, end: datetime) -> ShadowReport:
        """Return the decisions that shadow policies would have made from `start` to `end`. Raises NotFound for an
        unknown pool.
        """
        async with self._database.reading() as connection:
            asked = {"pool": (await pool_row(connection, pool)).id, "start": start, "end": end, "most": MOST_READ}
            policies = [ShadowFigures(**_figures(row)) for row in await _rows(connection, _IN_ALL, asked)]
            hours = [ShadowHour(at=row.hour, **_figures(row)) for row in await _rows(connection, _BY_HOUR, asked)]
        return ShadowReport(pool=str(pool), start=start, end=end, policies=policies, hours=hours)


async def _rows(connection: AsyncConnection, statement: Any, asked: dict[str, Any]) -> Any:
    return (await connection.execute(statement, asked)).all()


def _figures(row: Any) -> dict[str, Any]:
    ttft, ttft_error = mean_by_sessions(row.n, row.sessions, row.n_n, row.ttft, row.ttft_ttft, row.ttft_n)
    hits, hits_error = mean_by_sessions(row.n, row.sessions, row.n_n, row.hits, row.hits_hits, row.hits_n)
    return {
        "policy": row.policy,
        "decided_by": row.decided_by,
        "asked": row.asked,
        "failed": row.failed,
        "alike": row.alike,
        "ttft_change_seconds": ttft,
        "ttft_error_seconds": ttft_error,
        "hit_change_tokens": hits,
        "hit_error_tokens": hits_error,
        "off_seconds": row.off,
    }


def mean_by_sessions(n: float, sessions: int, n_n: float, s: float, s_s: float, s_n: float) -> tuple[float | None, float | None]:
    """Return the mean of `n` values in `sessions` clusters, and the standard error of the mean, from sums over the
    clusters.

    A cluster has n_c values with the sum s_c; `n_n`, `s`, `s_s` and `s_n` are the sums of n_c n_c, s_c, s_c s_c and s_c
    n_c. The standard error is that of a ratio estimator (Cochran, Sampling Techniques, 1977, section 6.3). The mean is
    None without values, and the standard error is None with fewer than two clusters.
    """
    if not n:
        return None, None
    mean = s / n
    if sessions < 2:
        return mean, None
    squares = max(0.0, s_s - 2 * mean * s_n + mean * mean * n_n)
    return mean, sqrt(squares * sessions / (sessions - 1)) / n
