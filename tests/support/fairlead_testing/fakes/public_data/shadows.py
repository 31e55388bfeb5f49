"""Made-up shadows: one would have shorter waits, the other mostly agrees with the pool's policy."""

from datetime import datetime, timedelta
from typing import Any

from fairlead_client.resources.shadows import ShadowFigures, ShadowHour, ShadowReport


def made_up_shadows(pool: str, now: datetime) -> ShadowReport:
    """Return the pool's two shadows over three hours."""
    hours = [now.replace(minute=0, second=0, microsecond=0) - timedelta(hours=back) for back in range(3)]
    return ShadowReport(
        pool=pool,
        start=now - timedelta(days=1),
        end=now,
        policies=[ShadowFigures(**_sums(one, 3)) for one in ("ear", "min-ttft")],
        hours=[ShadowHour(at=at, **_sums(one, 1)) for at in hours for one in ("ear", "min-ttft")],
    )


def _sums(policy: str, hours: int) -> dict[str, Any]:
    eager = policy == "min-ttft"
    return {
        "policy": policy,
        "decided_by": "fairlead",
        "asked": 1200 * hours,
        "failed": 0 if eager else hours,
        "alike": (840 if eager else 1130) * hours,
        "ttft_change_seconds": -0.084 if eager else 0.031,
        "ttft_error_seconds": 0.011,
        "hit_change_tokens": -2140.0 if eager else 310.0,
        "hit_error_tokens": 160.0,
        "off_seconds": 0.062,
    }
