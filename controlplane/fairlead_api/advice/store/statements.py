"""The SQL statements of advice. Each statement covers all requested pools. The number of rows that a statement reads is
bounded: by the number of minutes whose traffic is read, or by the number of objects.
"""

from sqlalchemy import text

from fairlead_api.infra.database import ROUTER_LIVE_FOR

WINDOW_SECONDS = 300
MOVES_SECONDS = 3600
MOST_ALONE = 500
"""Maximum number of a pool's kept decisions that are read to find requests whose instance was idle."""
ROUTER_FORGOTTEN_SECONDS = 3600
"""Seconds after a router's last report for which a finding still says that the router is silent. After that, the router
is forgotten.
"""
MOST_MOVES = 2000
"""Maximum number of a pool's moves whose gains are added up; the newest moves are used."""

TRAFFIC = text(f"""
SELECT pool_id, instance, sum(judged) AS judged, sum(in_time) AS in_time, sum(ttft_judged) AS ttft_judged,
  sum(ttft_in_time) AS ttft_in_time, sum(tpot_judged) AS tpot_judged, sum(tpot_in_time) AS tpot_in_time,
  sum(requests) AS requests, sum(failed) AS failed, sum(prefilled_tokens) AS prefilled_tokens,
  count(*) FILTER (WHERE ttft_judged > 0 OR requests > 0) AS minutes,
  count(*) FILTER (WHERE ttft_judged - ttft_in_time > ttft_judged * allowed) AS late_minutes,
  count(*) FILTER (WHERE failed > requests * allowed) AS failing_minutes
FROM (
  SELECT pool_id, instance, sum(judged_by_slo) AS judged, sum(within_slo) AS in_time, sum(ttft_total) AS ttft_judged,
    sum(ttft_within_slo) AS ttft_in_time, sum(tpot_total) AS tpot_judged, sum(tpot_within_slo) AS tpot_in_time,
    sum(requests_total) AS requests, sum(failed_total) AS failed, sum(prompt_tokens - hit_tokens) AS prefilled_tokens
  FROM load_rollups_10s r WHERE r.pool_id = ANY(:pools) AND r.bucket > CAST(:now AS timestamptz) - interval '{WINDOW_SECONDS} seconds'
  GROUP BY pool_id, instance, greatest(0, floor(extract(epoch FROM CAST(:now AS timestamptz) - r.bucket) / 60))
) AS by_minute
JOIN unnest(CAST(:pools AS bigint[]), CAST(:allowed AS float8[])) AS wanted (id, allowed) ON wanted.id = by_minute.pool_id
GROUP BY pool_id, instance
""")  # noqa: S608 (numbers of this module's own)
"""SQL for the traffic of pools. `allowed` holds, for each of `pools`, the share of requests that may miss the
objectives.
"""
REFUSED = text(f"""
SELECT pool_id, reason, CAST(sum(count) AS bigint) AS refused FROM rejections
WHERE pool_id = ANY(:pools) AND second > CAST(:now AS timestamptz) - interval '{WINDOW_SECONDS} seconds' GROUP BY pool_id, reason
""")  # noqa: S608
FAILED = text(f"""
SELECT pool_id, CAST(sum(failed) AS bigint) AS failed FROM slo_rollups_1m
WHERE pool_id = ANY(:pools) AND bucket > CAST(:now AS timestamptz) - interval '{WINDOW_SECONDS} seconds' GROUP BY pool_id
""")  # noqa: S608
INSTANCES = text(
    "SELECT pool_id, id, role, state, reason, weight FROM instances WHERE pool_id = ANY(:pools) AND gone_at IS NULL ORDER BY pool_id, id"
)
LOSSES = text("""
SELECT pool_id, instance, count(*) AS losses FROM instance_transitions
WHERE pool_id = ANY(:pools) AND at > CAST(:now AS timestamptz) - interval '1 hour' AND after = 'Lost' GROUP BY pool_id, instance
""")
MOVES = text(f"""
SELECT wanted.id AS pool_id, count(*) AS known, count(*) FILTER (WHERE gain <= 0) AS lost, sum(gain) AS net, min(gain) AS worst,
  CAST(sum(bytes) AS float8) / nullif(sum(tokens) FILTER (WHERE bytes IS NOT NULL), 0) AS bytes_per_token
FROM unnest(CAST(:pools AS integer[])) AS wanted (id), LATERAL (
  SELECT m.predicted_source_ttft_seconds - m.actual_ttft_seconds AS gain, m.transfer_bytes AS bytes, m.tokens_moved AS tokens
  FROM migrations m
  WHERE m.pool_id = wanted.id AND m.at > CAST(:now AS timestamptz) - interval '{MOVES_SECONDS} seconds'
  ORDER BY m.at DESC LIMIT {MOST_MOVES}) AS moved
WHERE gain IS NOT NULL GROUP BY wanted.id
""")  # noqa: S608
ADVISED = text("""
SELECT DISTINCT ON (pool_id, controller, role) pool_id, controller, role, current, recommended, replicas, verdict, hold, reason,
  extract(epoch FROM CAST(:now AS timestamptz) - at) AS age
FROM scaling_decisions WHERE pool_id = ANY(:pools) AND at > CAST(:now AS timestamptz) - interval '1 hour'
ORDER BY pool_id, controller, role, at DESC
""")
ROUTERS = text(f"""
SELECT p.key AS pool, count(*) FILTER (WHERE r.gone_at IS NULL AND r.last_seen_at > now() - {ROUTER_LIVE_FOR}) AS live,
  extract(epoch FROM min(now() - r.last_seen_at)) AS unheard
FROM routers r, jsonb_object_keys(r.acknowledged) AS p (key) WHERE p.key = ANY(:keys) GROUP BY p.key
""")  # noqa: S608
SILENT_ROUTERS = text(f"""
SELECT p.key AS pool, r.id AS name, extract(epoch FROM now() - r.last_seen_at) AS seconds,
  (SELECT coalesce(sum(CAST(w.value ->> 2 AS bigint)), 0) FROM jsonb_array_elements(r.in_flight) AS w (value)
    WHERE w.value ->> 0 = p.key) AS requests,
  (SELECT count(*) FROM routers o WHERE o.gone_at IS NULL AND o.last_seen_at > now() - {ROUTER_LIVE_FOR}
    AND o.first_seen_at > r.last_seen_at AND jsonb_exists(o.acknowledged, p.key)) AS joined_since
FROM routers r, jsonb_object_keys(r.acknowledged) AS p (key)
WHERE r.gone_at IS NULL AND r.last_seen_at <= now() - {ROUTER_LIVE_FOR}
  AND r.last_seen_at > now() - interval '{ROUTER_FORGOTTEN_SECONDS} seconds' AND p.key = ANY(:keys) ORDER BY r.last_seen_at, r.id
""")  # noqa: S608
APART = text(f"""
SELECT p.key AS pool, p.value ->> 'why' AS why, count(*) AS routers
FROM routers r, jsonb_each(r.shares) AS p (key, value)
WHERE r.gone_at IS NULL AND r.last_seen_at > now() - {ROUTER_LIVE_FOR} AND p.key = ANY(:keys) GROUP BY 1, 2
""")  # noqa: S608
LEARNT = text(f"""
SELECT p.key AS pool, bool_or(CAST(f.value ->> 'in_use' AS boolean)) AS in_use,
  sum(CAST(f.value ->> 'samples' AS float8)) AS samples,
  sum(CAST(f.value ->> 'error' AS float8) * CAST(f.value ->> 'samples' AS float8))
    / nullif(sum(CAST(f.value ->> 'samples' AS float8)) FILTER (WHERE f.value ->> 'error' IS NOT NULL), 0) AS measured,
  sum(CAST(f.value ->> 'declared_error' AS float8) * CAST(f.value ->> 'samples' AS float8))
    / nullif(sum(CAST(f.value ->> 'samples' AS float8)) FILTER (WHERE f.value ->> 'declared_error' IS NOT NULL), 0) AS declared
FROM routers r, jsonb_each(r.learnt_figures) AS p (key, value), jsonb_array_elements(p.value -> '') AS f (value)
WHERE r.gone_at IS NULL AND r.last_seen_at > now() - {ROUTER_LIVE_FOR} AND p.key = ANY(:keys)
  AND f.value ->> 'quantity' = 'prefill-seconds-per-token' GROUP BY p.key
""")  # noqa: S608


def _weighted(name: str) -> str:
    """Return SQL for the mean of a column, weighted by samples; the rows without a value do not count."""
    return f"sum({name} * weight) / sum(weight) FILTER (WHERE {name} IS NOT NULL) AS {name}"


FIGURES = text(f"""
SELECT pool, quantity, {_weighted("predicted")}, {_weighted("observed")}, {_weighted("declared")}, max(off_seconds) AS off_seconds
FROM (
  SELECT p.key AS pool, f.value ->> 'quantity' AS quantity, CAST(f.value ->> 'predicted' AS float8) AS predicted,
    CAST(f.value ->> 'observed' AS float8) AS observed, CAST(f.value ->> 'declared' AS float8) AS declared,
    CAST(f.value ->> 'off_seconds' AS float8) AS off_seconds, greatest(1, CAST(f.value ->> 'samples' AS float8)) AS weight
  FROM routers r, jsonb_each(r.learnt_figures) AS p (key, value), jsonb_array_elements(p.value -> '') AS f (value)
  WHERE r.gone_at IS NULL AND r.last_seen_at > now() - {ROUTER_LIVE_FOR} AND p.key = ANY(:keys)
) AS reported
GROUP BY pool, quantity HAVING max(off_seconds) > 0 ORDER BY 1, 2
""")  # noqa: S608
TROUBLED = text(f"""
SELECT p.key AS pool, t.value ->> 0 AS instance, t.value ->> 1 AS trouble, min(coalesce(CAST(t.value ->> 3 AS float8), 0)) AS seconds,
  array_agg(coalesce(t.value -> 4, '[]')) AS ranks
FROM routers r, jsonb_each(r.troubled_engines) AS p (key, value), jsonb_array_elements(p.value) AS t (value)
WHERE r.gone_at IS NULL AND r.last_seen_at > now() - {ROUTER_LIVE_FOR} AND p.key = ANY(:keys)
GROUP BY p.key, t.value ->> 0, t.value ->> 1
""")  # noqa: S608
MODELS = text("""
SELECT wanted.id AS pool_id, newest.figures FROM unnest(CAST(:pools AS integer[])) AS wanted (id), LATERAL (
  SELECT m.figures FROM predictor_models m WHERE m.pool_id = wanted.id AND m.at > CAST(:now AS timestamptz) - interval '1 hour'
  ORDER BY m.version DESC LIMIT 1) AS newest
""")
ALONE = text(f"""
SELECT 1 / sample_rate AS weight, CASE WHEN coalesce(held_seconds, 0) = 0 AND coalesce(attempts, '[]') IN ('[]', 'null')
  AND served_by = chosen AND served_by_rank IS NOT DISTINCT FROM chosen_rank AND EXISTS (
    SELECT FROM jsonb_array_elements(candidates) AS c (value) WHERE c.value ->> 'instance' = concat_ws('#', chosen, chosen_rank)
    AND CAST(c.value ->> 'pending_tokens' AS float8) = 0) THEN ttft_seconds - coalesce(queued_seconds, 0) END AS alone
FROM decisions WHERE pool_id = :pool AND at > CAST(:now AS timestamptz) - interval '{WINDOW_SECONDS} seconds' ORDER BY at DESC LIMIT {MOST_ALONE}
""")  # noqa: S608
"""SQL for a pool's newest kept decisions. `weight` is the number of requests that a decision represents. `alone` is the
seconds from dispatch to first token of a request whose instance had no other prompt to compute; it is NULL for all
other requests.
"""
SESSIONS = text("SELECT instance, count(*) AS bound FROM sessions WHERE pool_id = :pool AND instance = ANY(:names) GROUP BY instance")
MINUTES = text("""
SELECT r.pool_id, r.slo_version, w.name AS window, CAST(sum(r.judged) AS bigint) AS judged, CAST(sum(r.within_slo) AS bigint) AS within_slo
FROM slo_rollups_1m r
JOIN unnest(CAST(:names AS text[]), CAST(:starts AS timestamptz[])) AS w (name, start) ON r.bucket >= w.start
WHERE r.pool_id = ANY(:pools) AND r.bucket >= :earliest GROUP BY r.pool_id, r.slo_version, w.name
""")
HOURS = text("""
SELECT r.pool_id, r.slo_version, CAST(sum(r.judged) AS bigint) AS judged, CAST(sum(r.within_slo) AS bigint) AS within_slo
FROM slo_rollups_1h r WHERE r.pool_id = ANY(:pools) AND r.bucket >= :start GROUP BY r.pool_id, r.slo_version
""")
PERCENTILES = text("SELECT pool_id, version, percentile FROM slo_configs WHERE pool_id = ANY(:pools)")
