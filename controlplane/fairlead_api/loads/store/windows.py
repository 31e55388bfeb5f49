"""Reads the history of one instance in a range of time: load of all instances, senders, moves, changes.

Every statement uses an index and reads a bounded number of rows.
"""

# ruff: noqa: S608 (statements are put together from this module's own constants; values are always bound)

from collections import Counter
from collections.abc import Callable
from datetime import datetime
from typing import Any

from sqlalchemy import Table, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.instances import InstanceState, Role
from fairlead.tables import PoolKey
from fairlead_api import tables
from fairlead_api.infra.database import Database
from fairlead_api.infra.paging import RowsWithin
from fairlead_api.loads.differing import Seen, SeenRequests
from fairlead_api.loads.explaining import Evidence, Stretch, Stretches
from fairlead_api.loads.heatmaps import Grid, Place
from fairlead_api.loads.store.samples import PER_SECOND, SUMMED, pool_and_limits
from fairlead_api.loads.store.senders import TOP, recorded_senders, whole_senders
from fairlead_client.resources.heatmaps import METRICS
from fairlead_client.resources.load_explanations import LEAST_SAMPLES, Flow, Moved, Senders, SenderShare, WindowChange

READ = 5_000
"""Maximum number of decisions, and of moves in each direction, that are read for one response."""
REVISIONS = 200
"""Number of a pool's newest revisions that are searched for changes."""
CHANGES = 20
NOT_KNOWN = 1 << 62
"""Used in place of an unknown number of sent requests. It is so large that the record of requests counts as incomplete.
"""

_SEEN = """
SELECT at, chosen, session, priority_class, reason, prompt_tokens, sample_rate, (
  SELECT CAST(one ->> 'miss_tokens' AS bigint) FROM jsonb_array_elements(candidates) AS one
  WHERE one ->> 'instance' = chosen || coalesce('#' || chosen_rank, '') LIMIT 1
) AS miss_tokens FROM decisions WHERE pool_id = :pool AND at >= :start AND at < :end AND chosen <> '' ORDER BY at DESC LIMIT :most
"""

_SENT = (
    (600, "load_samples", "second", "requests"),
    (21_600, "load_rollups_10s", "bucket", "requests_total"),
    (float("inf"), "load_rollups_1m", "bucket", "requests_total"),
)
"""The tables that count sent requests. For each: the longest range in seconds for which it is read, its name, its time
column and its count.
"""

_COUNTS = ("requests_total", "prompt_tokens", "hit_tokens", "output_tokens")

_SENDERS = """
WITH recorded AS (
  SELECT session, prompt_tokens, sample_rate, at, (
    SELECT CAST(one ->> 'miss_tokens' AS bigint) FROM jsonb_array_elements(candidates) AS one
    WHERE one ->> 'instance' = chosen || coalesce('#' || chosen_rank, '') LIMIT 1
  ) AS prefill_tokens FROM decisions
  WHERE chosen = :instance AND at >= :start AND at < :end AND pool_id = :pool AND coalesce(served_by, chosen) = chosen
  ORDER BY at DESC LIMIT :most
), by_session AS (
  SELECT session, count(*) AS requests, sum(prompt_tokens) AS prompt_tokens, sum(prompt_tokens / sample_rate) AS weight,
    sum(prefill_tokens) AS prefill_tokens, sum(prefill_tokens / sample_rate) AS prefill_weight,
    sum(1 / sample_rate) AS weights, sum(1 / sample_rate ^ 2) AS squares
  FROM recorded GROUP BY session
), ranked AS (
  SELECT *, sum(weight) OVER () AS whole, sum(prefill_weight) OVER () AS prefill_whole,
    CAST(sum(requests) OVER () AS bigint) AS recorded, count(session) OVER () AS sessions,
    sum(prompt_tokens) OVER () AS tokens, sum(prefill_tokens) OVER () AS to_prefill,
    sum(weights) OVER () ^ 2 / sum(squares) OVER () AS worth,
    row_number() OVER (ORDER BY weight DESC, session) AS estimated_place,
    row_number() OVER (ORDER BY prefill_weight DESC NULLS LAST, session) AS estimated_prefill_place,
    row_number() OVER (ORDER BY prompt_tokens DESC, session) AS recorded_place,
    row_number() OVER (ORDER BY prefill_tokens DESC NULLS LAST, session) AS recorded_prefill_place
  FROM by_session
), placed AS (
  SELECT *, CASE WHEN recorded < :sent AND worth >= :least THEN estimated_place ELSE recorded_place END AS place,
    CASE WHEN recorded < :sent AND worth >= :least THEN estimated_prefill_place ELSE recorded_prefill_place END AS prefill_place
  FROM ranked
)
SELECT *, (SELECT min(at) FROM recorded) AS first FROM placed WHERE place <= :top OR prefill_place <= :top ORDER BY place
"""


class PostgresLoadWindows:
    """Implements `loads.explaining.LoadWindows`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def stretches(self, pool: PoolKey, where: Grid) -> Stretches:
        async with self._database.reading() as connection:
            number, limits = await pool_and_limits(connection, pool)
            values = {"pool": number, "start": where.start, "end": where.end, "step": where.step}
            found: tuple[dict[str, Stretch], dict[str, Stretch]] = ({}, {})
            for item in (await connection.execute(text(_figures(where.source)), values)).mappings():
                if 0 <= item["place"] < len(found):
                    found[int(item["place"])][item["instance"]] = _stretch(item)
            instances = tables.instances
            about = await connection.execute(
                select(instances.c.id, instances.c.state, instances.c.role, instances.c.node).where(
                    instances.c.pool_id == number, instances.c.gone_at.is_(None) | instances.c.id.in_({*found[0], *found[1]})
                )
            )
            places = {one.id: Place(state=InstanceState(one.state), role=Role(one.role), node=one.node) for one in about}
        return Stretches(now=found[1], before=found[0], places=places, limits=limits)

    async def evidence(
        self, pool: PoolKey, instance: str, start: datetime, end: datetime, senders_from: datetime, changes_from: datetime
    ) -> Evidence:
        async with self._database.reading() as connection:
            number, _ = await pool_and_limits(connection, pool)
            return Evidence(
                senders=await _senders(connection, number, instance, senders_from, end),
                arrived=await _moved(connection, tables.migrations, number, instance, ("target", "source"), (start, end)),
                left=await _moved(connection, tables.migrations, number, instance, ("source", "target"), (start, end)),
                changes=sorted(
                    [
                        *await _revisions(connection, number, changes_from, end),
                        *await _transitions(connection, number, instance, changes_from, end),
                    ],
                    key=lambda change: change.at,
                ),
            )

    async def seen(self, pool: PoolKey, start: datetime, end: datetime) -> SeenRequests:
        """Return the newest recorded requests of [start, end), the nodes of instances, and the pool's revisions. Raises
        NotFound.
        """
        instances, revisions = tables.instances, tables.pool_revisions
        async with self._database.reading() as connection:
            number, _ = await pool_and_limits(connection, pool)
            rows = await connection.execute(text(_SEEN), {"pool": number, "start": start, "end": end, "most": READ})
            seen = [_seen(row) for row in rows]
            chosen = select(instances.c.id, instances.c.node).where(
                instances.c.pool_id == number, instances.c.id.in_({one.instance for one in seen})
            )
            nodes = {one.id: one.node for one in await connection.execute(chosen)}
            newest = (
                select(revisions.c.at, revisions.c.number)
                .where(revisions.c.pool_id == number)
                .order_by(revisions.c.number.desc())
                .limit(REVISIONS)
            )
            numbers = sorted((at, revision) for at, revision in await connection.execute(newest))
        return SeenRequests(seen=seen, nodes=nodes, revisions=numbers)


def _seen(row: Any) -> Seen:
    return Seen(
        at=row.at,
        instance=row.chosen,
        session=row.session,
        priority_class=row.priority_class,
        reason=row.reason,
        prompt_tokens=row.prompt_tokens,
        miss_tokens=row.miss_tokens,
        weight=1.0 / row.sample_rate,
    )


def _figures(source: str) -> str:
    """Return SQL with one row for each instance and column of the grid: all metrics and counts, and in `place` the
    index of the column.
    """
    if source == "1s":
        parts = [f"max({metric}) AS {metric}_max, sum({metric}) AS {metric}_sum, count({metric}) AS {metric}_n" for metric in METRICS]
        parts += [f"coalesce(sum({SUMMED[name]}), 0) AS {name}" for name in _COUNTS]
        column = "floor(extract(epoch FROM second - :start) / :step)"
        return PER_SECOND + f"SELECT instance, {column} AS place, {', '.join(parts)} FROM per_second GROUP BY 1, 2"
    parts = [f"max({metric}_max) AS {metric}_max, sum({metric}_sum) AS {metric}_sum, sum({metric}_n) AS {metric}_n" for metric in METRICS]
    parts += [f"sum({name}) AS {name}" for name in _COUNTS]
    column = "floor(extract(epoch FROM bucket - :start) / :step)"
    table = f"load_rollups_{source}"
    return (
        f"SELECT instance, {column} AS place, {', '.join(parts)} FROM {table} "
        "WHERE pool_id = :pool AND bucket >= :start AND bucket < :end GROUP BY 1, 2"
    )


def _stretch(item: Any) -> Stretch:
    return Stretch(
        values={
            metric: (float(item[f"{metric}_max"]), float(item[f"{metric}_sum"]) / int(item[f"{metric}_n"]))
            for metric in METRICS
            if item[f"{metric}_n"]
        },
        requests=int(item["requests_total"]),
        prompt_tokens=int(item["prompt_tokens"]),
        hit_tokens=int(item["hit_tokens"]),
        output_tokens=int(item["output_tokens"]),
    )


async def _senders(connection: AsyncConnection, pool: int, instance: str, start: datetime, end: datetime) -> Senders:
    """Return the sessions that sent requests to the instance: from the record of all requests if it is complete,
    otherwise from the kept decisions, which are a sample.
    """
    known = await recorded_senders(connection, pool, instance, start, end)
    if known.rows:
        sent = await _sent(connection, pool, instance, known.begun, end)
        if sent is not None and known.is_whole(sent):
            return await whole_senders(connection, pool, instance, known, end, sent)
    sent = await _sent(connection, pool, instance, start, end)
    values = {"pool": pool, "instance": instance, "start": start, "end": end, "most": READ, "top": TOP, "least": LEAST_SAMPLES}
    rows = (await connection.execute(text(_SENDERS), values | {"sent": NOT_KNOWN if sent is None else sent})).all()
    recorded = int(rows[0].recorded) if rows else 0
    begun = start
    if recorded >= READ:
        begun = rows[0].first
        sent = await _sent(connection, pool, instance, begun, end)
    sent = None if sent is None else max(sent, recorded)
    shares = _exact if recorded == sent else _estimated if rows and rows[0].worth >= LEAST_SAMPLES else _none
    return Senders(
        start=begun,
        sent=sent,
        recorded=recorded,
        sessions_seen=int(rows[0].sessions) if rows else 0,
        top=[_sender(row, shares) for row in sorted(rows, key=lambda row: int(row.place)) if row.place <= TOP],
        top_by_prefill=[
            _sender(row, shares)
            for row in sorted(rows, key=lambda row: int(row.prefill_place))
            if row.prefill_place <= TOP and row.prefill_tokens is not None
        ],
    )


Shares = tuple[float | None, float | None]
"""A sender's share of the prompt tokens, and its share of the tokens to prefill; None if unknown."""


def _exact(row: Any) -> Shares:
    return _part(row.prompt_tokens, row.tokens), _part(row.prefill_tokens, row.to_prefill)


def _estimated(row: Any) -> Shares:
    return _part(row.weight, row.whole), _part(row.prefill_weight, row.prefill_whole)


def _none(row: Any) -> Shares:
    return None, None


def _part(own: Any, whole: Any) -> float | None:
    return None if own is None else float(own) / float(whole) if whole else 0.0


def _sender(row: Any, shares: Callable[[Any], Shares]) -> SenderShare:
    tokens_share, prefill_share = shares(row)
    return SenderShare(
        session=row.session,
        requests=int(row.requests),
        prompt_tokens=int(row.prompt_tokens),
        tokens_share=tokens_share,
        prefill_tokens=None if row.prefill_tokens is None else int(row.prefill_tokens),
        prefill_share=prefill_share,
    )


async def _sent(connection: AsyncConnection, pool: int, instance: str, start: datetime, end: datetime) -> int | None:
    """Return the number of requests sent to the instance, from the finest table that still covers the range of time;
    None if no table covers it.
    """
    for longest, table, at, total in _SENT:
        if (end - start).total_seconds() > longest:
            continue
        query = (
            f"SELECT sum({total}) AS sent FROM {table} WHERE pool_id = :pool AND instance = :instance AND {at} >= :start AND {at} < :end"
        )
        values = {"pool": pool, "instance": instance, "start": start, "end": end}
        found = (await connection.execute(text(query), values)).scalar_one()
        if found is not None:
            return int(found)
    return None


async def _moved(
    connection: AsyncConnection, table: Table, pool: int, instance: str, ends: tuple[str, str], between: tuple[datetime, datetime]
) -> Moved:
    """Return the moves that connect the instance with other instances, counted by the other instance. `ends` names two
    columns of the table: the column that must contain the instance, and the column with the other instance.
    """
    here, there = (table.c[name] for name in ends)
    query = (
        select(there)
        .where(here == instance, table.c.at >= between[0], table.c.at < between[1], table.c.pool_id == pool)
        .order_by(table.c.at.desc())
        .limit(READ)
    )
    counted = Counter((await connection.execute(query)).scalars())
    total = counted.total()
    flows = sorted(counted.items(), key=lambda item: (-item[1], item[0]))[:TOP]
    return Moved(
        total=total,
        complete=total < READ,
        instances=len(counted),
        flows=[Flow(instance=name, count=amount) for name, amount in flows],
    )


async def _revisions(connection: AsyncConnection, pool: int, start: datetime, end: datetime) -> list[WindowChange]:
    revisions = tables.pool_revisions
    newest = RowsWithin(select(revisions).where(revisions.c.pool_id == pool).order_by(revisions.c.number.desc()).limit(REVISIONS))
    query = newest.select().where(newest.c.at >= start, newest.c.at < end).order_by(newest.c.number.desc()).limit(CHANGES)
    return [
        WindowChange(at=row.at, kind="revision", words=f"revision {row.number} changed {_paths(row.diff)}", actor=row.actor)
        for row in await connection.execute(query)
        if row.number > 1
    ]


def _paths(diff: list[dict[str, Any]]) -> str:
    """Describe the first two changed paths of a diff: `/spec/slo/ttft` from 5s to 3s becomes `slo.ttft from 5s
    to 3s`.
    """
    told = [_change(one) for one in diff]
    more = len(told) - 2
    return "; ".join(told[:2]) + (f" and {more} more" if more > 0 else "") if told else "nothing that is compared"


def _change(one: dict[str, Any]) -> str:
    path = str(one.get("path", "")).removeprefix("/spec/").strip("/").replace("/", ".")
    before, after = one.get("before"), one.get("after")
    if any(isinstance(value, dict | list) for value in (before, after)):
        return path
    return f"{path} from {'none' if before is None else before} to {'none' if after is None else after}"


async def _transitions(connection: AsyncConnection, pool: int, instance: str, start: datetime, end: datetime) -> list[WindowChange]:
    changes = tables.instance_transitions
    query = (
        select(changes)
        .where(changes.c.pool_id == pool, changes.c.instance == instance, changes.c.at >= start, changes.c.at < end)
        .order_by(changes.c.at.desc(), changes.c.id.desc())
        .limit(CHANGES)
    )
    rows = (await connection.execute(query)).all()
    return [WindowChange(at=row.at, kind="state", words=f"it became {row.after} ({row.reason})", actor=None) for row in reversed(rows)]
