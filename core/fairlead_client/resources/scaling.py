"""Scaling decisions: what was recommended for a role, why, and whether it was followed."""

from dataclasses import dataclass
from datetime import datetime

from fairlead.scaling.decisions import ScalingDecision


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingDecisionItem(ScalingDecision[datetime]):
    """A recommendation of one pool."""

    at: datetime
    pool: str
