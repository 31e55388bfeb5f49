"""The sessions that sent requests to an instance in a range of time, from the routers' records of every finished
request.

A record has the request's lengths and a number that is a hash of the session's name (`fairlead.reports.traffic`). Names
are recovered by hashing all session names in the pool's bindings and decisions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.reports.traffic import salt_of, session_number
from fairlead_api import tables
from fairlead_client.resources.load_explanations import Senders, SenderShare

READ = 50_000
"""Maximum number of requests that are read for one response (the newest of the range), and maximum number of session
names that are hashed.
"""
TOP = 10
LONGEST_WAIT = 600.0
"""Maximum seconds from a request's arrival until it is sent to an instance. Requests that waited longer are
not found.
"""
WHOLE_SHARE = 0.9
"""Minimum share of an instance's requests that must be recorded. Below it, the sessions are taken from the sample of
decisions instead. A request is recorded when it ends, so the share is low right after a burst.
"""

_SUMS = """
WITH recorded AS MATERIALIZED (
  SELECT session, instance, at, at + make_interval(secs => sent_seconds) AS sent_at, prompt_tokens, sample_rate,
    greatest(0, coalesce(engine_prompt_tokens, prompt_tokens) - coalesce(cached_tokens, 0)) AS prefill_tokens
  FROM recorded_requests WHERE pool_id = :pool AND at >= CAST(:start AS timestamptz) - make_interval(secs => :wait) AND at < :end
  ORDER BY at DESC LIMIT :most
), begun AS (
  SELECT CASE WHEN count(*) < :most THEN :start ELSE greatest(CAST(:start AS timestamptz), min(at)) END AS at FROM recorded
)
SELECT session, count(*) AS requests, sum(prompt_tokens) AS prompt_tokens, sum(prefill_tokens) AS prefill_tokens,
  min(sample_rate) AS sample_rate, begun.at AS begun
FROM recorded CROSS JOIN begun WHERE instance = :instance AND sent_at >= begun.at AND sent_at < :end GROUP BY session, begun.at
"""

_NAMES = """
(SELECT DISTINCT session FROM (
  SELECT session FROM decisions WHERE pool_id = :pool AND chosen = :instance AND at >= :start AND at < :end AND session IS NOT NULL
  ORDER BY at DESC LIMIT :most
) AS decided)
UNION
(SELECT session FROM sessions WHERE pool_id = :pool AND last_seen_at >= :start ORDER BY last_seen_at DESC LIMIT :most)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedSenders:
    """Recorded requests that were sent to an instance since `begun`, summed by the hash of their session's name."""

    begun: datetime
    recorded: int
    rows: Sequence[Any]

    def is_whole(self, sent: int) -> bool:
        """Return whether the record covers nearly all `sent` requests; False if it is only a sample."""
        return bool(self.rows) and min(row.sample_rate for row in self.rows) >= 1 and self.recorded >= WHOLE_SHARE * sent


async def recorded_senders(connection: AsyncConnection, pool: int, instance: str, start: datetime, end: datetime) -> RecordedSenders:
    """Return the recorded requests that were sent to the instance from `start` to `end`."""
    values = {"pool": pool, "instance": instance, "start": start, "end": end, "most": READ, "wait": LONGEST_WAIT}
    rows = (await connection.execute(text(_SUMS), values)).all()
    return RecordedSenders(begun=rows[0].begun if rows else start, recorded=sum(int(row.requests) for row in rows), rows=rows)


async def whole_senders(connection: AsyncConnection, pool: int, instance: str, found: RecordedSenders, end: datetime, sent: int) -> Senders:
    """Return the numbers of requests and tokens that each session sent to the instance, computed from all recorded
    requests. `sent` is the number of requests that the instance received. A session's name is given if it is known.
    """
    names = await _names(connection, pool, instance, found.begun, end) if any(row.session is not None for row in found.rows) else {}
    tokens = sum(int(row.prompt_tokens) for row in found.rows)
    to_prefill = sum(int(row.prefill_tokens) for row in found.rows)
    shares = [_share(row, names, tokens, to_prefill) for row in found.rows]
    by_tokens = sorted(shares, key=lambda one: (-one.prompt_tokens, one.session or ""))
    by_prefill = sorted(shares, key=lambda one: (-(one.prefill_tokens or 0), one.session or ""))
    return Senders(
        start=found.begun,
        sent=max(sent, found.recorded),
        recorded=found.recorded,
        sessions_seen=sum(row.session is not None for row in found.rows),
        top=by_tokens[:TOP],
        top_by_prefill=by_prefill[:TOP],
        is_whole=True,
        unnamed_share=_part(sum(one.prompt_tokens for one in shares if one.is_unnamed), tokens),
    )


async def _names(connection: AsyncConnection, pool: int, instance: str, start: datetime, end: datetime) -> dict[int, str]:
    """Return the names of sessions by the hashes of their names."""
    uid = (await connection.execute(select(tables.pools.c.uid).where(tables.pools.c.id == pool))).scalar_one()
    salt, values = salt_of(uid), {"pool": pool, "instance": instance, "start": start, "end": end, "most": READ}
    return {session_number(salt, name): name for (name,) in await connection.execute(text(_NAMES), values)}


def _share(row: Any, names: dict[int, str], tokens: int, to_prefill: int) -> SenderShare:
    prompt_tokens, prefill_tokens = int(row.prompt_tokens), int(row.prefill_tokens)
    name = None if row.session is None else names.get(row.session)
    return SenderShare(
        session=name,
        requests=int(row.requests),
        prompt_tokens=prompt_tokens,
        tokens_share=_part(prompt_tokens, tokens),
        prefill_tokens=prefill_tokens,
        prefill_share=_part(prefill_tokens, to_prefill),
        is_unnamed=row.session is not None and name is None,
    )


def _part(own: int, whole: int) -> float:
    return own / whole if whole else 0.0
