"""Ten days of history in a database, made by Postgres itself: as much as a busy fleet leaves behind, for measuring
and explaining its lists.

Instances are `i1` … `iN`; sessions `sess-<hash>`. The pool `big/p1` has all instances and sessions, and a third of the
moves and decisions. Some values never occur together (trigger `drain` and outcome `failed`), so that a filter can be
made that matches nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from string import Template

import psycopg


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Rows by kind."""

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
_MOVE = """
INSERT INTO $table (id, pool_id, session, request, source, target, trigger, at, recorded_at, router, predicted_source_ttft_seconds,
    predicted_target_ttft_seconds, benefit_seconds, actual_ttft_seconds, outcome)
SELECT '${table}-' || md5(i::text), p1 + i % 3, 'sess-' || md5((1 + i % ${sessions})::text), 'r' || i, 'i' || (1 + i % ${instances}),
    'i' || (1 + (i::bigint * 7 + 3) % ${instances}), (ARRAY['ring-change', 'slo', 'hotspot', 'drain'])[1 + i % 4], t, t, 'router-0', 5, 1, 4,
    CASE WHEN i % 3 = 0 THEN 1 + i % 9 END, CASE WHEN i % 4 = 1 AND i % 200 = 1 THEN 'failed' ELSE 'completed' END
FROM (SELECT i, $p1 AS p1, now() - i * make_interval(secs => ${days} * 86400.0 / $rows) AS t FROM generate_series(1, $rows) i) made
"""

_POOLS = """
INSERT INTO pools (namespace, name, uid, generation, resource_version, model, spec, labels, annotations, changed_by, conditions, revision,
    created_at, observed_at)
SELECT 'big', 'p' || i, 'u' || i, 1, '1', 'm', jsonb_build_object('model', 'm', 'replicas', ${instances}), '{}', '{}', 'x', '[]', 1,
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
    'i' || (1 + i % ${instances}), 'i2', (ARRAY['bound', 'bound', 'cold', 'slo'])[1 + i % 4], 1000, 0.1, 0.5, 0.05, '${candidates}'::jsonb
FROM (SELECT i, $p1 AS p1, now() - i * make_interval(secs => ${days} * 86400.0 / ${decisions}) AS t
      FROM generate_series(1, ${decisions}) i) made
""",
    """
INSERT INTO rejections (pool_id, router, second, reason, count, status, sample_request, sample_prompt_tokens, retry_after_seconds)
SELECT $p1 + i % 3, 'router-0', date_trunc('second', now() - i * interval '10 seconds'), 'overloaded', 3, 503, 'r' || i, 100, 1
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
INSERT INTO audit_log (id, at, day, actor, role, source, action, object, result, chain)
SELECT i, t, (t AT TIME ZONE 'UTC')::date, 'person-' || i % 50, 'admin', 'test', (ARRAY['plan.applied', 'login', 'access.denied'])[1 + i % 3],
    'big/p' || (1 + i % 3), 'ok', md5(i::text)
FROM (SELECT i, now() - (${audit} - i) * make_interval(secs => ${days} * 86400.0 / ${audit}) AS t FROM generate_series(1, ${audit}) i) made
""",
)
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
    """Fills an empty, migrated database (a libpq URL) and brings its statistics up to date."""
    values = {name: getattr(size, name) for name in Size.__slots__} | {"candidates": _CANDIDATE, "p1": _P1}
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET TIME ZONE 'UTC'")
        connection.execute("SET synchronous_commit = off")
        connection.execute(_DAYS)
        for statement in (_POOLS, *_ROWS):
            connection.execute(Template(statement).substitute(values).encode())
        connection.execute("VACUUM ANALYZE")
