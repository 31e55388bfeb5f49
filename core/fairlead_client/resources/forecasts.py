"""Forecasts of a pool's demand, and the schedules that are proposed from them."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from fairlead_client.resources.plan_kinds import PlanRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastQuarter:
    """A quarter of an hour of the coming week: requests per second as forecast, with the band in which nine of ten
    quarters should be, and the least instances of each role by the present schedules and by the proposed ones.
    """

    at: datetime
    requests: float
    low: float
    high: float
    present: dict[str, int]
    proposed: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedQuarter:
    """A quarter of an hour of the last week: requests per second, refused ones included; None if not recorded."""

    at: datetime
    requests: float | None


class TrialOf(StrEnum):
    """The schedules with which the last week was run again: none in mode SLO, the present ones, the proposed ones."""

    REACTIVE = "reactive"
    PRESENT = "present"
    PROPOSED = "proposed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleTrial:
    """What would have become of the last week: instance hours, and late requests of all."""

    schedules: TrialOf
    instance_hours: float
    requests: int
    late: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolForecast:
    """A pool's forecast for seven days from the last midnight of its time zone; `unknown` says why there is none.

    Instances are asked for `lead_seconds` before they are needed: the time of a start (measured, or else assumed), and
    that in which a new cache holds as much as the others. `schedules` are proposed, `request` plans them, None if the
    pool has them already. `trials` of the last week are empty until they were made, which takes a while after the first
    request for them; `worth_it` says whether by them the proposed ones are clearly better. `departed` says that demand
    is outside of the forecast, so that schedules which follow it are suspended.
    """

    pool: str
    mode: str
    time_zone: str
    unknown: str | None = None
    start: datetime | None = None
    quarters: list[ForecastQuarter] = field(default_factory=list)
    recorded: list[RecordedQuarter] = field(default_factory=list)
    start_seconds: float | None = None
    start_is_measured: bool = False
    lead_seconds: float | None = None
    schedules: list[dict[str, Any]] = field(default_factory=list)
    trials: list[ScheduleTrial] = field(default_factory=list)
    worth_it: bool | None = None
    request: PlanRequest | None = None
    departed: str | None = None
