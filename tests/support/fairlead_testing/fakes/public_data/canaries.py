"""A made-up canary: its first step passed, and its second waits with a slower time to first token."""

from datetime import datetime, timedelta

from fairlead.canaries.verdicts import StepVerdict
from fairlead_client.resources.canaries import Canary, CanaryEstimate, CanaryLook, CanaryStep


def made_up_canary(pool: str, now: datetime) -> Canary:
    """Return the pool's canary with its two steps."""
    passed = _look(now - timedelta(minutes=20), StepVerdict.GO, "nothing is worse by more than is allowed", 0.01)
    waits = [
        _look(now - timedelta(minutes=one), StepVerdict.WAIT, "no verdict on the time to first token after 90 pairs", 0.04)
        for one in (1, 2)
    ]
    return Canary(
        pool=pool,
        steps=[
            _step("k/1", 0.25, now - timedelta(minutes=4), None, waits),
            _step("k/0", 0.1, now - timedelta(minutes=40), now - timedelta(minutes=4), [passed]),
        ],
    )


def _step(name: str, share: float, began: datetime, ended: datetime | None, looks: list[CanaryLook]) -> CanaryStep:
    return CanaryStep(step=name, share=share, began_at=began, ended_at=ended, hits_judged_at=began + timedelta(minutes=5), looks=looks)


def _look(at: datetime, verdict: StepVerdict, reason: str, slower: float) -> CanaryLook:
    return CanaryLook(
        at=at,
        verdict=verdict,
        reason=reason,
        requests=1600,
        canary_requests=400,
        canary_sessions=90,
        other_sessions=270,
        late_requests=3,
        estimates=[
            _estimate("ttft", slower, -0.01, 0.12, verdict),
            _estimate("tpot", 0.0, -0.03, 0.03),
            _estimate("hits", -0.01, -0.06, 0.04, is_ratio=False),
            _estimate("errors", 0.0, None, None, is_ratio=False),
            _estimate("tokens", 0.02, -0.12, None),
        ],
    )


def _estimate(
    metric: str, change: float, low: float | None, high: float | None, verdict: StepVerdict = StepVerdict.GO, *, is_ratio: bool = True
) -> CanaryEstimate:
    return CanaryEstimate(metric=metric, is_ratio=is_ratio, pairs=90, change=change, low=low, high=high, verdict=verdict)
