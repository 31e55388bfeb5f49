"""Forecasts of a pool's demand, and the schedules that are proposed from them."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from fairlead_client.resources.plan_kinds import PlanRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastQuarter:
    """A quarter of an hour of the coming week: the forecast in requests per second, the band that should contain nine
    of ten quarters, and the minimum instances of each role by the present schedules and by the proposed schedules.
    """

    at: datetime
    requests: float
    low: float
    high: float
    present: dict[str, int]
    proposed: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedQuarter:
    """A quarter of an hour of the last week. It has the requests per second, including refused requests; None if not
    recorded.
    """

    at: datetime
    requests: float | None


class TrialOf(StrEnum):
    """The schedules with which the last week is simulated again: no schedules in mode SLO, the present schedules, or
    the proposed schedules.
    """

    REACTIVE = "reactive"
    PRESENT = "present"
    PROPOSED = "proposed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleTrial:
    """The result of simulating the last week again: instance hours, the number of late requests, and the number of all
    requests.
    """

    schedules: TrialOf
    instance_hours: float
    requests: int
    late: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolForecast:
    """A pool's forecast for seven days from the last midnight of its time zone. If there is no forecast, `unknown` says
    why.

    Instances are requested `lead_seconds` before they are needed: the time of a start (measured or, without a
    measurement, assumed) plus the time until a new instance's cache holds as much as the caches of all other instances.
    `schedules` are the proposed schedules; `request` is the request for a plan with them, None if the pool has them
    already. `trials` are simulations of the last week; they are empty until computed, which takes a while after the
    first request. `worth_it` says whether the proposed schedules were clearly better in the trials. `departed` says
    that demand is outside of the forecast, so that schedules which follow the forecast are suspended.
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
