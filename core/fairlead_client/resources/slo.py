"""Service level objectives of pools, version by version."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class SloVersion:
    version: int
    pool: str
    ttft_seconds: float
    tpot_seconds: float
    percentile: float
    active_from: datetime
    active_until: datetime | None
    attainment: float | None
    requests: int
