"""Refused requests, grouped by cause."""

from dataclasses import dataclass
from datetime import datetime

from fairlead.reports.rejections import RejectionReason
from fairlead.tables import DEFAULT_CLASS


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectionGroup:
    """Refused requests of one cause and priority class. `sparkline` is the count per bucket of the requested range, the
    oldest first.
    """

    pool: str
    reason: RejectionReason
    status: int
    count: int
    share: float
    first_at: datetime
    last_at: datetime
    sparkline: list[int]
    samples: list["RejectionSample"]
    suggestion: str
    priority_class: str = DEFAULT_CLASS


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectionSample:
    """A refused request. `request` is the router's id of the request, as in its decision, not the client's id."""

    at: datetime
    request: str
    prompt_tokens: int
    retry_after_seconds: float
    predicted_ttft_seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectionReport:
    groups: list[RejectionGroup]
    total: int
    served: int
