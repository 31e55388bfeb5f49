"""Webhooks: addresses of receivers, and the notices that are sent to them."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


class NoticeKind(StrEnum):
    """The subject of a notice. The values are stored, shown and sent on the wire."""

    OUT_OF_SLO = "pool.out-of-slo"
    """The pool's condition SLOMet or TaskSLOMet became False."""
    INSTANCE_LOST = "instance.lost"
    """An instance became Lost, or somebody else deleted its pod while it served."""
    INSTANCE_STALLED = "instance.stalled"
    """A router found that an instance's engine has work and makes no progress."""
    ROLLOUT_HALTED = "rollout.halted"
    """A rollout was paused, is late, or made the pool worse than the former version did."""
    SCHEDULE_SKIPPED = "schedule.skipped"
    """A schedule's window did not open, or has no effect."""
    FORECAST_LEFT = "forecast.left"
    """Demand left the band of the pool's forecast, so schedules that follow it are suspended."""
    PLAN_PROPOSED = "plan.proposed"
    """Advice became a plan that waits for somebody to apply it."""
    PLAN_APPLIED = "plan.applied"
    TEST = "test"
    """Somebody asked for a test notice, to try the receiver."""


SUBSCRIBED = tuple(kind for kind in NoticeKind if kind is not NoticeKind.TEST)
"""The kinds that a webhook may name."""


class NoticeForm(StrEnum):
    """The format of a notice's body: JSON as the Standard Webhooks specification defines it, or a message for Slack."""

    JSON = "json"
    SLACK = "slack"


class NoticeState(StrEnum):
    """The state of a notice: it waits for its next attempt, was delivered, or was given up."""

    WAITING = "waiting"
    DELIVERED = "delivered"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookRequest:
    """A webhook to create: notices of `kinds` about `pools` (as `namespace/name`) are posted to `url`. An empty list
    means every kind, or every pool.
    """

    name: str
    url: str
    form: NoticeForm = NoticeForm.JSON
    kinds: tuple[NoticeKind, ...] = ()
    pools: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """A webhook. `origin` is the part of its address before the path; no response contains the rest, because it may be
    a secret like a password. `secret` signs its notices and is present only in the response that created it. `waiting`
    counts notices that are not delivered yet, and `last_problem` is the reason why the newest attempt failed.
    """

    id: str
    name: str
    origin: str
    form: NoticeForm
    kinds: tuple[NoticeKind, ...]
    pools: tuple[str, ...]
    created_at: datetime
    created_by: str
    secret: str | None = None
    waiting: int = 0
    delivered_at: datetime | None = None
    last_problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeAttempt:
    """One attempt to deliver a notice. `status` is the receiver's, if it responded; `problem` is the reason why the
    attempt counts as failed, None if the notice was delivered.
    """

    at: datetime
    seconds: float | None = None
    status: int | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookNotice:
    """A notice to one webhook. `id` is the same in every attempt. `subject` is the instance, schedule, plan or pool of
    the notice, `due_at` the time of the next attempt.
    """

    id: str
    webhook: str
    kind: NoticeKind
    pool: str
    subject: str
    words: str
    at: datetime
    state: NoticeState
    due_at: datetime | None = None
    attempts: tuple[NoticeAttempt, ...] = field(default=())
