"""Numbers over time, for all pools, one pool or one instance, and the events in the same time."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class Scope(StrEnum):
    """The subject of a series."""

    FLEET = "fleet"
    POOL = "pool"
    INSTANCE = "instance"


class Drawn(StrEnum):
    """The way in which a chart connects consecutive values."""

    LINE = "line"
    """The value was measured in each step; None in a step without a measurement."""
    STEPS = "steps"
    """Each value holds until the next value; None before the first known value."""
    POINTS = "points"
    """The value is known only at single moments; the steps between them have no value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesLine:
    """One metric over time; `part` names its role, priority class, cause or router, None = the whole.

    Each line has the steps of its own records. Value `i` covers `step_seconds`, beginning `i` steps after `start`; None
    = no value is known for the step. A rate is computed over the known part of a step.
    """

    metric: str
    part: str | None
    unit: str
    drawn: Drawn
    start: datetime
    step_seconds: int
    values: list[float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Lines from `start` to `end`, of one pool, of one of its instances, or of all pools together if `pool` is None."""

    pool: str | None
    instance: str | None
    start: datetime
    end: datetime
    lines: list[SeriesLine]


class AnnotationKind(StrEnum):
    """The kind of an event."""

    SCALED = "scaled"
    """The desired number of instances changed."""
    REVISION = "revision"
    """The pool's spec changed; there is a new revision."""
    SCHEDULE = "schedule"
    """A schedule's window was open."""
    FAILURE = "failure"
    """An instance was lost, or started again."""
    COMMENT = "comment"
    """Somebody commented on a time or a plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotation:
    """An event at the time `at`, or from `at` until `until`. `words` describe the event without the pool's name."""

    at: datetime
    until: datetime | None
    kind: AnnotationKind
    pool: str
    instance: str | None
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotations:
    """The events from `start` to `end`, oldest first. If not `complete`, only the newest events of a kind are
    listed.
    """

    start: datetime
    end: datetime
    items: list[Annotation]
    complete: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesMetric:
    """A metric: its unit, the subjects for which it exists, and its meaning."""

    unit: str
    scopes: frozenset[Scope]
    words: str


_ALL = frozenset(Scope)
_POOLS = frozenset({Scope.FLEET, Scope.POOL})
_POOL = frozenset({Scope.POOL})

SERIES_METRICS: Mapping[str, SeriesMetric] = {
    "requests": SeriesMetric(unit="requests/s", scopes=_ALL, words="Requests sent to instances"),
    "failed": SeriesMetric(unit="requests/s", scopes=_ALL, words="Requests that failed at an instance"),
    "refused": SeriesMetric(unit="requests/s", scopes=_POOLS, words="Refused requests"),
    "refused_by_cause": SeriesMetric(unit="requests/s", scopes=_POOLS, words="Refused requests, by cause"),
    "output_tokens": SeriesMetric(unit="tokens/s", scopes=_ALL, words="Output tokens of finished requests"),
    "attainment": SeriesMetric(unit="share", scopes=_POOLS, words="Share of judged requests with TTFT and TPOT in time"),
    "ttft_attainment": SeriesMetric(
        unit="share", scopes=_ALL, words="Share of judged requests with TTFT in time; for an instance, of first tokens"
    ),
    "goal": SeriesMetric(unit="share", scopes=_POOL, words="Share that the objectives require"),
    "burn": SeriesMetric(unit="times", scopes=_POOL, words="Late requests over those that the error budget allows"),
    "ttft_p50": SeriesMetric(unit="seconds", scopes=_POOLS, words="TTFT, median"),
    "ttft_p95": SeriesMetric(unit="seconds", scopes=_ALL, words="TTFT, 95th percentile; for an instance the highest of a second"),
    "ttft_limit": SeriesMetric(unit="seconds", scopes=_POOL, words="TTFT that the objectives allow"),
    "tpot_p95": SeriesMetric(unit="seconds", scopes=_ALL, words="TPOT, 95th percentile; for an instance the highest of a second"),
    "tpot_limit": SeriesMetric(unit="seconds", scopes=_POOL, words="TPOT that the objectives allow"),
    "hit_rate": SeriesMetric(unit="share", scopes=_ALL, words="Prompt tokens found in a prefix cache"),
    "running": SeriesMetric(unit="requests", scopes=_ALL, words="Requests running on instances"),
    "waiting": SeriesMetric(unit="requests", scopes=_ALL, words="Requests waiting in routers"),
    "pending_prefill_tokens": SeriesMetric(unit="tokens", scopes=_ALL, words="Uncached tokens of prompts without a first token"),
    "kv_usage": SeriesMetric(unit="share", scopes=_ALL, words="KV cache in use, mean over instances"),
    "instances_serving": SeriesMetric(unit="instances", scopes=_POOL, words="Instances serving, by role"),
    "instances_wanted": SeriesMetric(unit="instances", scopes=_POOL, words="Desired instances, by role"),
    "instances_recommended": SeriesMetric(unit="instances", scopes=_POOL, words="Instances recommended, by role and controller"),
    "prefill_load": SeriesMetric(unit="times", scopes=_POOL, words="Predicted TTFT of pending prefills over its limit, by role"),
    "decode_load": SeriesMetric(unit="times", scopes=_POOL, words="Predicted TPOT over its limit, by role"),
    "migrations": SeriesMetric(unit="moves", scopes=_POOLS, words="Session migrations"),
    "reroutes": SeriesMetric(unit="moves", scopes=_POOLS, words="Re-routes of requests"),
    "seconds_won": SeriesMetric(unit="seconds", scopes=_POOLS, words="TTFT saved by migrations, minus TTFT that others lost"),
    "tasks": SeriesMetric(unit="tasks", scopes=_POOL, words="Tasks that were over, by priority class"),
    "task_attainment": SeriesMetric(unit="share", scopes=_POOL, words="Share of judged tasks in time, by priority class"),
    "task_burn": SeriesMetric(unit="times", scopes=_POOL, words="Late tasks over those that the error budget allows, by priority class"),
    "task_turns": SeriesMetric(unit="turns", scopes=_POOL, words="Turns of a task, mean, by priority class"),
    "task_queue_time": SeriesMetric(unit="seconds", scopes=_POOL, words="Time of a task's turns in queues, mean, by priority class"),
    "task_model_time": SeriesMetric(unit="seconds", scopes=_POOL, words="Time of a task's turns in engines, mean, by priority class"),
    "task_tool_time": SeriesMetric(
        unit="seconds", scopes=_POOL, words="Time between a task's turns, mean where it is known, by priority class"
    ),
    "task_hit_rate": SeriesMetric(unit="share", scopes=_POOL, words="Prompt tokens of tasks found in a prefix cache, by priority class"),
    "task_moves": SeriesMetric(unit="moves", scopes=_POOL, words="Session migrations of a task, mean, by priority class"),
    "task_refusals": SeriesMetric(unit="requests", scopes=_POOL, words="Refused requests of a task, mean, by priority class"),
    "predictor_error": SeriesMetric(unit="seconds", scopes=_POOL, words="Mean error of the TTFTs predicted by models, by router"),
    "formula_error": SeriesMetric(unit="seconds", scopes=_POOL, words="Mean error of the router's own formula, by router"),
    "predictor_drift": SeriesMetric(unit="deviations", scopes=_POOL, words="Deviation of features from those in training, by router"),
}
"""Metrics by name."""
