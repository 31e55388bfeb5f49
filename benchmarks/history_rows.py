"""Fills a database with ten days of a busy fleet's history, so that lists can be measured and explained. Postgres
generates the rows.

Instances are `i1` … `iN`, sessions `sess-<hash>`. The pool `big/p1` has all instances and sessions, and a third of the
moves and decisions. Some values never occur together, for example the trigger `drain` and the outcome `failed`, so that
some filters match no rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from string import Template
from typing import Any

import psycopg
from sqlalchemy import create_engine, make_url, text

from fairlead_api.loads.store.heatmap_columns import MAKE
from fairlead_api.moves.store import AT_ONCE, TAKE, computing
from fairlead_client.resources.heatmaps import METRICS


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The number of rows of each kind."""

    instances: int
    sessions: int
    migrations: int
    decisions: int
    audit: int
    load_seconds: int
    days: int = 10


MILLION = Size(instances=500, sessions=100_000, migrations=1_000_000, decisions=1_000_000, audit=200_000, load_seconds=360)
SMALL = Size(instances=40, sessions=25_000, migrations=30_000, decisions=30_000, audit=25_000, load_seconds=60)

_P1 = "(SELECT id FROM pools WHERE namespace = 'big' AND name = 'p1')"
_CANDIDATE = (
    '[{"instance":"i1","hit_tokens":1,"miss_tokens":2,"pending_tokens":3,"predicted_ttft_seconds":0.5,"total":1.0,"terms":{"a":1}},'
    '{"instance":"i2","hit_tokens":1,"miss_tokens":2,"pending_tokens":3,"predicted_ttft_seconds":0.7,"total":2.0,"terms":{"a":2}}]'
)
_SCHEDULE = '{"name": "p1", "cron": "0 8 * * *", "duration": "1h", "roles": [{"name": "both", "minReplicas": 1}]}'
_SIGNALS = '{"role": "both", "serving": 4, "in_flight": 9, "waiting": 1, "prompt_tokens_per_second": 900, "output_tokens_per_second": 90}'
_MOVE = """
INSERT INTO $table (id, pool_id, session, request, source, target, trigger, at, recorded_at, router, predicted_source_ttft_seconds,
    predicted_target_ttft_seconds, benefit_seconds, actual_ttft_seconds, outcome)
SELECT '${table}-' || md5(i::text), p1 + i % 3, 'sess-' || md5((1 + i % ${sessions})::text), 'r' || i, 'i' || (1 + i % ${instances}),
    'i' || (1 + (i::bigint * 7 + 3) % ${instances}), (ARRAY['ring-change', 'slo', 'hotspot', 'drain'])[1 + i % 4], t, t, 'router-0', 5, 1, 4,
    CASE WHEN i % 3 = 0 THEN 1 + i % 9 END, CASE WHEN i % 4 = 1 AND i % 200 = 1 THEN 'failed' ELSE 'completed' END
FROM (SELECT i, $p1 AS p1, now() - i * make_interval(secs => ${days} * 86400.0 / $rows) AS t FROM generate_series(1, $rows) i) made
"""

_KEPT = """
INSERT INTO $table (pool_id, bucket, priority_class, slo_version, judged, within_slo, cells, counts)
SELECT $p1, t, c, CASE WHEN t < now() - interval '5 days' THEN 1 ELSE 2 END, 60, 55, (SELECT array_agg(n * 300) FROM generate_series(1, 30) n),
    array_fill(2, ARRAY[30])
FROM generate_series(date_trunc('$step', now()) - ${days} * interval '1 day', now(), interval '1 $step') t, unnest(ARRAY['default', 'low']) c
"""
_POOLS = """
INSERT INTO pools (namespace, name, uid, generation, resource_version, model, spec, labels, annotations, changed_by, conditions, revision,
    created_at, observed_at)
SELECT 'big', 'p' || i, 'u' || i, 1, '1', 'm',
    jsonb_build_object('model', 'm', 'replicas', ${instances}, 'scaling', '{"schedules": [${schedule}]}'::jsonb), '{}', '{}', 'x', '[]', 1,
    now() - interval '10 days', now() FROM generate_series(1, 3) i
"""
_ROWS = (
    """
INSERT INTO instances (pool_id, id, pod_uid, address, role, state, reason, weight, created_at, state_since)
SELECT $p1, 'i' || i, 'pod' || i, '127.0.0.1:1', 'both', 'Serving', 'x', 1, now() - interval '1 day', now() FROM generate_series(1, ${instances}) i
""",
    """
INSERT INTO instance_transitions (pool_id, instance, at, before, after, reason)
SELECT $p1, 'i' || (1 + i % ${instances}), now() - i * interval '20 seconds', 'Warming', 'Serving', 'x' FROM generate_series(1, 40000) i
""",
    """
INSERT INTO pool_events (pool_id, at, reason, message)
SELECT $p1, now() - i * interval '30 seconds', 'Scaled', 'message ' || i FROM generate_series(1, 25000) i
""",
    """
INSERT INTO sessions (pool_id, session, instance, version, reason, router, bound_at, last_seen_at, migrations, context_tokens)
SELECT $p1, 'sess-' || md5(i::text), 'i' || (1 + i % ${instances}), 2, 'cold', 'router-0', now() - interval '2 days',
    now() - i * make_interval(secs => 86400.0 / ${sessions}), 1, 1000 FROM generate_series(1, ${sessions}) i
""",
    """
INSERT INTO bindings (pool_id, session, version, instance, reason, router, bound_at, released_at)
SELECT $p1, 'sess-' || md5(i::text), v, 'i' || (1 + (i + v) % ${instances}), 'cold', 'router-0', now() - interval '2 days' + v * interval '1 hour',
    CASE WHEN v = 1 THEN now() - interval '1 day' END FROM generate_series(1, ${sessions}) i, generate_series(1, 2) v
""",
    _MOVE.replace("$rows", "${migrations}").replace("${table}", "migrations").replace("$table", "migrations"),
    _MOVE.replace("$rows", "${migrations}").replace("${table}", "reroutes").replace("$table", "reroutes"),
    """
INSERT INTO decisions (id, pool_id, request, session, at, recorded_at, router, policy, table_version, chosen, runner_up, reason, prompt_tokens,
    queued_seconds, ttft_seconds, sample_rate, candidates)
SELECT 'd-' || md5(i::text), p1 + i % 3, 'r' || i, 'sess-' || md5((1 + i % ${sessions})::text), t, t, 'router-0', 'fairlead', 1,
    'i' || (1 + i % ${instances}), 'i2',
    (ARRAY['session-bound', 'session-bound', 'session-cold', 'slo-overloaded'])[1 + i % 4], 1000, 0.1, 0.5, 0.05, '${candidates}'::jsonb
FROM (SELECT i, $p1 AS p1, now() - i * make_interval(secs => ${days} * 86400.0 / ${decisions}) AS t
      FROM generate_series(1, ${decisions}) i) made
""",
    """
INSERT INTO rejections (pool_id, router, second, reason, count, status, sample_request, sample_prompt_tokens, retry_after_seconds)
SELECT $p1 + i % 3, 'router-0', date_trunc('second', now() - i * interval '10 seconds'), 'rejected-queue-full', 3, 503, 'r' || i, 100, 1
FROM generate_series(1, 30000) i
""",
    """
INSERT INTO load_samples (pool_id, router, instance, second, sent_at, running, waiting, pending_prefill_tokens, in_flight, kv_usage, requests,
    completed, prompt_tokens, hit_tokens, output_tokens, ttft_seconds, tpot_seconds, ttft_within_slo, ttft_total)
SELECT $p1, 'router-0', 'i' || i, date_trunc('second', now()) - s * interval '1 second', now() - s * interval '1 second', 3, 1, 2000, 4, 0.5, 1, 1,
    1000, 500, 100, ARRAY[0.2 + (i % 10) / 10.0]::real[], ARRAY[0.02]::real[], 1, 1
FROM generate_series(1, ${instances}) i, generate_series(0, ${load_seconds} - 1) s
""",
    """
INSERT INTO slo_configs (pool_id, version, ttft_seconds, tpot_seconds, percentile, active_from, active_until)
SELECT $p1, v, 5, 0.1, 90, now() - (3 - v) * interval '5 days', CASE WHEN v = 1 THEN now() - interval '5 days' END FROM generate_series(1, 2) v
""",
    _KEPT.replace("$table", "slo_rollups_1m").replace("$step", "minute"),
    _KEPT.replace("$table", "slo_rollups_1h").replace("$step", "hour"),
    """
INSERT INTO scaling_decisions (id, pool_id, at, controller, role, mode, current, recommended, replicas, verdict, hold, cause, lower, upper,
    reason, signals)
SELECT 's-' || md5(i::text), $p1 + i % 3, now() - i * interval '30 seconds', (ARRAY['Scaling', 'Ratio'])[1 + i % 2],
    (ARRAY['prefill', 'decode'])[1 + i % 2], 'SLO', 4, 5, 5, (ARRAY['Applied', 'Held'])[1 + i % 2], CASE WHEN i % 2 = 1 THEN 'Cooldown' END,
    'Prompts', 1, 8, 'reason ' || i, '[${signals}]'::jsonb FROM generate_series(1, 25000) i
""",
    """
INSERT INTO schedule_runs (pool_id, uid, schedule, start, closes, outcome, reason, opened_at, closed_at)
SELECT $p1 + i % 3, 'u', 'p' || i % 3, t, t + interval '1 minute', (ARRAY['closed', 'skipped'])[1 + i % 2], 'ended', t, t + interval '1 minute'
FROM (SELECT i, now() - i * interval '5 minutes' AS t FROM generate_series(1, 25000) i) made
""",
    """
INSERT INTO audit_log (id, at, day, actor, role, source, action, object, result, chain)
SELECT i, t, (t AT TIME ZONE 'UTC')::date, 'person-' || i % 50, 'admin', 'test', (ARRAY['plan.applied', 'login', 'access.denied'])[1 + i % 3],
    'big/p' || (1 + i % 3), 'ok', md5(i::text)
FROM (SELECT i, now() - (${audit} - i) * make_interval(secs => ${days} * 86400.0 / ${audit}) AS t FROM generate_series(1, ${audit}) i) made
""",
    """
INSERT INTO audit_heads (day, last_id, chain, at) SELECT DISTINCT ON (day) day, id, chain, at FROM audit_log ORDER BY day, id DESC
""",
    "UPDATE pools SET slo_version = 2 WHERE id = $p1",
)
"""Statements that fill the tables. The last two record the newest audit entries and the newest SLO version, so that
later writes continue after them.
"""
_DAYS = """
DO $$ DECLARE d date; t text; BEGIN
  FOREACH t IN ARRAY ARRAY['decisions', 'rejections', 'load_samples'] LOOP
    FOR d IN SELECT generate_series(current_date - 11, current_date + 1, '1 day')::date LOOP
      EXECUTE format('CREATE TABLE IF NOT EXISTS %I PARTITION OF %I FOR VALUES FROM (%L) TO (%L)', t || '_' || to_char(d, 'YYYYMMDD'), t,
        d::timestamp AT TIME ZONE 'UTC', (d + 1)::timestamp AT TIME ZONE 'UTC');
    END LOOP;
  END LOOP;
END $$
"""


def fill(url: str, size: Size) -> None:
    """Fill an empty, migrated database (a libpq URL) and update its statistics."""
    values = {name: getattr(size, name) for name in Size.__slots__} | {
        "candidates": _CANDIDATE,
        "p1": _P1,
        "schedule": _SCHEDULE,
        "signals": _SIGNALS,
    }
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET TIME ZONE 'UTC'")
        connection.execute("SET synchronous_commit = off")
        connection.execute(_DAYS)
        for statement in (_POOLS, *_ROWS):
            connection.execute(Template(statement).substitute(values).encode())
    _roll_up_moves(url)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")


def _roll_up_moves(url: str) -> None:
    """Roll up all moves with the API's own statements."""
    engine = create_engine(make_url(url).set(drivername="postgresql+psycopg"))
    with engine.connect() as connection:
        while minutes := connection.execute(TAKE, {"ended": datetime.now(UTC), "most": AT_ONCE}).all():
            for statement, values in computing((row.pool_id, row.minute) for row in minutes):
                connection.execute(statement, values)
            connection.commit()
    engine.dispose()


_SAMPLES = """
INSERT INTO {partition} (pool_id, router, instance, second, sent_at, running, waiting, pending_prefill_tokens, in_flight, kv_usage, requests,
    completed, prompt_tokens, hit_tokens, output_tokens, ttft_seconds, tpot_seconds, ttft_within_slo, ttft_total, tpot_within_slo, tpot_total,
    within_slo, judged_by_slo, prefilled_tokens, generated_tokens, prefilling_seconds)
SELECT {p1}, 'router-0', 'i' || i, t, t, 3 + i %% 5, s %% 3, (i * 37 + s * 11) %% 5000, 4, ((i + s) %% 97) / 100.0, 1, 1, 1000, 500, 100,
    ARRAY[0.2 + (i %% 10) / 10.0 + (s %% 7) / 70.0]::real[], ARRAY[0.02]::real[], 1, 1, 1, 1, 1, 1, 500, 100, 0.4
FROM (SELECT s, to_timestamp(s) AS t FROM generate_series(%(first)s::bigint, %(last)s::bigint - 1) s) seconds, generate_series(1, %(instances)s) i
"""
_ROLLED = """
INSERT INTO {table} (pool_id, bucket, instance, {columns})
SELECT {p1}, to_timestamp(s), 'i' || i, {values}
FROM generate_series(%(first)s::bigint, %(last)s::bigint - 1, {step}) s, generate_series(1, %(instances)s) i
"""


def fill_loads(url: str, instances: int, first: int, last: int, *, samples_from: int = 0) -> int:
    """Write a load sample of every instance of `big/p1` for each second from `first` to `last` (excluded), in Unix
    seconds, and the rollups of these samples.

    The rollups by minute cover at least a day, and the rollups by ten seconds cover three hours. Only the samples from
    `samples_from` on are kept. The partitions of these days are dropped and made again. Each is made in the transaction
    that fills it, so that Postgres with `wal_level = minimal` writes every row once. Return the number of samples.
    """
    values = {"instances": instances}
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET TIME ZONE 'UTC'")
        row = connection.execute(f"SELECT id FROM ({_P1}) p".encode()).fetchone()
        if row is None:
            raise LookupError("the database has no pool big/p1; call fill first")
        pool = str(row[0])
        for day in range(first // 86400, (last - 1) // 86400 + 1):
            begins, ends = datetime.fromtimestamp(day * 86400, UTC), datetime.fromtimestamp((day + 1) * 86400, UTC)
            partition = f"load_samples_{begins:%Y%m%d}"
            with connection.transaction():
                connection.execute(f"DROP TABLE IF EXISTS {partition}".encode())
                made = (
                    f"CREATE TABLE {partition} PARTITION OF load_samples FOR VALUES FROM ('{begins.isoformat()}') TO ('{ends.isoformat()}')"
                )
                connection.execute(made.encode())
                part = {"first": max(first, samples_from, day * 86400), "last": min(last, (day + 1) * 86400)}
                connection.execute(_SAMPLES.format(partition=partition, p1=pool).encode(), values | part)
        gauges = dict.fromkeys(METRICS, "(i * 37 + s) %% 50") | {"pending_prefill_tokens": "(i * 37 + s * 11) %% 5000"}
        gauges |= {"kv_usage": "((i + s) %% 97) / 100.0", "hit_rate": "0.5", "ttft_p95": "0.2 + (i %% 10) / 10.0", "tpot_p95": "0.02"}
        for table, step, begun in (
            ("load_rollups_10s", 10, min(first, last - 3 * 3600)),
            ("load_rollups_1m", 60, min(first, last - 86400)),
        ):
            parts = {f"{metric}_max": value for metric, value in gauges.items()}
            parts |= {f"{metric}_sum": f"{step} * ({value})" for metric, value in gauges.items()} | {
                f"{metric}_n": str(step) for metric in gauges
            }
            parts |= {
                "requests_total": str(step),
                "completed": str(step),
                "ttft_total": str(step),
                "ttft_within_slo": str(step - step // 10),
            }
            parts |= {"prompt_tokens": str(1000 * step), "hit_tokens": str(500 * step)}
            statement = _ROLLED.format(table=table, columns=", ".join(parts), values=", ".join(parts.values()), step=step, p1=pool)
            part = {"first": begun - begun % step, "last": last - last % step}
            connection.execute(f"TRUNCATE {table}".encode())
            connection.execute(statement.encode(), values | part)
            _fill_pool_rollups(connection, pool, table.replace("load", "pool"), step, values | part)
        connection.execute("VACUUM ANALYZE load_samples, load_rollups_10s, load_rollups_1m, pool_rollups_10s, pool_rollups_1m")
    fill_columns(url, min(first, last - 86400), last)
    return instances * (last - max(first, samples_from))


def fill_columns(url: str, first: int, last: int) -> None:
    """Write the heatmap columns of `big/p1` for [first, last) from the rollups, with the API's own statements.

    There are columns of one and of five minutes, and for the last three hours also of ten seconds.
    """
    engine = create_engine(make_url(url).set(drivername="postgresql+psycopg"))
    with engine.connect() as connection:
        pool = connection.execute(text(f"SELECT id FROM ({_P1}) p")).scalar_one()
        for step, begun in ((10, last - 3 * 3600), (60, first), (300, first)):
            for at in range(max(first, begun) // step * step, last, step):
                start = datetime.fromtimestamp(at, UTC)
                connection.execute(text(MAKE[step]), {"pool": pool, "start": start, "end": start + timedelta(seconds=step)})
            connection.commit()
    engine.dispose()


def continue_loads(url: str, instances: int, now: int) -> int:
    """Write load samples of `big/p1` from its last sample until `now`, and leave it to the API to roll them up.

    Return the number of seconds for which samples were written.
    """
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET TIME ZONE 'UTC'")
        connection.execute(_DAYS)
        row = connection.execute(f"SELECT id FROM ({_P1}) p".encode()).fetchone()
        if row is None:
            raise LookupError("the database has no pool big/p1; call fill first")
        pool = row[0]
        newest = connection.execute("SELECT CAST(extract(epoch FROM max(second)) AS bigint) FROM load_samples WHERE pool_id = %s", (pool,))
        ((last,),) = newest.fetchall()
        first = now - 600 if last is None else last + 1
        values = {"instances": instances, "first": first, "last": now}
        connection.execute(_SAMPLES.format(partition="load_samples", p1=pool).encode(), values)
        connection.execute(
            f"INSERT INTO rollup_queue (pool_id, bucket, router) SELECT {pool}, to_timestamp(s), 'router-0' "
            "FROM generate_series(%(first)s::bigint / 10 * 10, %(last)s::bigint - 1, 10) s ON CONFLICT DO NOTHING".encode(),
            values,
        )
    return int(max(0, now - first))


def _fill_pool_rollups(connection: psycopg.Connection[Any], pool: str, table: str, step: int, values: dict[str, int]) -> None:
    """Write the rollups of the pool, which are sums over its instances, from the values that `fill_loads` wrote."""
    sums = {"requests_total": step, "completed": step, "ttft_total": step, "ttft_within_slo": step - step // 10}
    sums |= {"prompt_tokens": 1000 * step, "hit_tokens": 500 * step}
    made = ", ".join(f"%(instances)s * {value}" for value in sums.values())
    connection.execute(f"TRUNCATE {table}".encode())
    connection.execute(
        f"INSERT INTO {table} (pool_id, bucket, seconds, instance_seconds, kv_usage_sum, kv_usage_n, {', '.join(sums)}) "
        f"SELECT {pool}, to_timestamp(s), {step}, %(instances)s * {step}, %(instances)s * {step} * 0.5, %(instances)s * {step}, {made} "
        f"FROM generate_series(%(first)s::bigint, %(last)s::bigint - 1, {step}) s".encode(),
        values,
    )
