"""Scaling decisions: the recommendation for a role, its reason, and whether it was followed."""

from dataclasses import dataclass
from datetime import datetime

from fairlead.scaling.decisions import ScalingDecision


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingDecisionItem(ScalingDecision[datetime]):
    """A scaling recommendation for one pool."""

    at: datetime
    pool: str
