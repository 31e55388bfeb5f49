"""Made-up series: values of the load that heatmaps show, waves for other metrics, and a gap in every hour."""

import math
from datetime import datetime, timedelta

from fairlead.reports.rejections import RejectionReason
from fairlead_api.series.grids import Steps, line, steps
from fairlead_client.resources.series import SERIES_METRICS, Annotation, AnnotationKind, Drawn, SeriesLine
from fairlead_testing.fakes.public_data.loads import HOSTILE, INSTANCES, SLO_TTFT, cell, noise

GAP = range(40, 46)
"""The minutes of every hour without values. The latest minutes always have values, because the content of a live page
must not depend on the minute in which a test runs.
"""
LATEST = timedelta(minutes=20)
SUMS = {"running", "waiting", "pending_prefill_tokens", "requests", "failed"}
MEANS = {"kv_usage", "hit_rate", "ttft_p95", "tpot_p95"}
STEPS = {"goal": 0.9, "tpot_limit": 0.1}
BY_ROLE = {"instances_serving": 8.0, "instances_wanted": 8.0}
PARTS = {
    "attainment": (None, "batch", "default"),
    "task_attainment": (None, "batch", "default"),
    "refused_by_cause": (RejectionReason.PREDICTED_TTFT.value, RejectionReason.QUEUE_FULL.value),
    "predictor_error": ("router-0", "router-1"),
    "formula_error": ("router-0",),
    "predictor_drift": ("router-0",),
    "instances_recommended": ("both",),
    "prefill_load": ("both",),
    "decode_load": ("both",),
}
RANGES = {
    "attainment": (0.8, 1.0),
    "ttft_attainment": (0.82, 1.0),
    "burn": (0.2, 2.4),
    "ttft_p50": (0.3, 1.1),
    "refused": (0.0, 6.6),
    "refused_by_cause": (0.0, 3.3),
    "output_tokens": (300.0, 900.0),
    "migrations": (0.0, 9.0),
    "reroutes": (0.0, 4.0),
    "seconds_won": (-12.0, 40.0),
    "tasks": (0.0, 40.0),
    "task_attainment": (0.7, 1.0),
    "task_burn": (0.2, 2.4),
    "task_turns": (4.0, 30.0),
    "task_queue_time": (0.5, 9.0),
    "task_model_time": (20.0, 200.0),
    "task_tool_time": (30.0, 400.0),
    "task_hit_rate": (0.5, 0.95),
    "task_moves": (0.0, 1.5),
    "task_refusals": (0.0, 0.4),
    "predictor_error": (0.1, 0.4),
    "formula_error": (0.2, 0.6),
    "predictor_drift": (0.0, 0.7),
    "instances_recommended": (6.0, 9.0),
    "prefill_load": (0.1, 1.2),
    "decode_load": (0.2, 0.9),
}
POINTS = {"predictor_error", "formula_error", "predictor_drift", "instances_recommended", "prefill_load", "decode_load"}


def lines_of(
    name: str, pool: str | None, instance: str | None, start: datetime, end: datetime, buckets: int, now: datetime
) -> list[SeriesLine]:
    """Return the lines of a metric, in the steps of the real API."""
    where = steps(start, end, buckets, now)
    unit = SERIES_METRICS[name].unit
    if name in STEPS or name == "ttft_limit":
        limit = STEPS.get(name, SLO_TTFT.get(pool or "", 5.0))
        return [line(name, unit, where, dict.fromkeys(range(where.count), limit), drawn=Drawn.STEPS)]
    if name in BY_ROLE:
        wanted: dict[int, float | None] = {index: 6.0 + 2.0 * (index * 2 >= where.count) for index in range(where.count)}
        return [line(name, unit, where, wanted, "both", Drawn.STEPS)]
    drawn = Drawn.POINTS if name in POINTS else Drawn.LINE
    return [line(name, unit, where, _values(name, part, pool, instance, where, now), part, drawn) for part in PARTS.get(name, (None,))]


def _values(name: str, part: str | None, pool: str | None, instance: str | None, where: Steps, now: datetime) -> dict[int, float | None]:
    found: dict[int, float | None] = {}
    for index in range(where.count):
        at = where.start + index * where.length
        if name in POINTS:
            found[index] = _wave(name, part, at) if index % 7 == 3 else None
        else:
            is_known = at.minute not in GAP or at > now - LATEST
            found[index] = _loaded(name, part, pool, instance, at) if is_known else None
    return found


def _loaded(name: str, part: str | None, pool: str | None, instance: str | None, at: datetime) -> float | None:
    if name not in SUMS | MEANS:
        return _wave(name, part, at)
    pools = INSTANCES if pool is None else {pool: [instance] if instance else INSTANCES[pool]}
    known = [value for one, names in pools.items() for each in names if (value := cell(one, each, name, at.timestamp())) is not None]
    return None if not known else sum(known) / (len(known) if name in MEANS else 1)


def _wave(name: str, part: str | None, at: datetime) -> float:
    low, high = RANGES[name]
    minute = at.timestamp() / 60
    wave = 0.5 + 0.35 * math.sin(minute / 9 + len(part or "")) + 0.15 * noise(name, part, int(minute))
    return round(low + (high - low) * min(1.0, max(0.0, wave)), 4)


def annotations_of(pool: str, start: datetime, end: datetime, now: datetime) -> list[Annotation]:
    """Return an annotation of each kind in the last hour. An instance's name tries to break pages."""
    told = (
        (50, 20, AnnotationKind.SCHEDULE, None, "schedule night"),
        (30, None, AnnotationKind.SCALED, None, "both: 6 → 8 wanted"),
        (29, None, AnnotationKind.REVISION, None, "revision 2 by ada: Evening peak"),
        (40, 31, AnnotationKind.COMMENT, None, f"operator-person: {HOSTILE} load test of the billing service"),
        (12, None, AnnotationKind.FAILURE, INSTANCES[pool][3], f"{HOSTILE} lost: PodFailed"),
    )
    found = [
        Annotation(
            at=now - timedelta(minutes=begun),
            until=None if ended is None else now - timedelta(minutes=ended),
            kind=kind,
            pool=pool,
            instance=instance,
            words=words,
        )
        for begun, ended, kind, instance, words in told
    ]
    return [one for one in found if start <= one.at < end]
