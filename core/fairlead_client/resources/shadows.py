"""Shadows: the predicted decisions of policies that only advise."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowFigures:
    """A comparison of an advising policy (`policy`) with the policy that decided (`decided_by`).

    The advising policy was asked for `asked` requests, and failed for `failed` of them. For `alike` requests it chose
    the same instance as the deciding policy. For the requests for which it chose another instance, the predicted TTFT
    there was on average `ttft_change_seconds` longer (negative: shorter), and `hit_change_tokens` more tokens of the
    prompt were cached there; both are None if there is no such request. Errors are standard errors of the mean, counted
    by sessions, because requests of a session are alike; None with fewer than two sessions.

    Both predictions are the router's, by one formula. `off_seconds` is the formula's mean error, in either direction,
    for the instances that did serve; None if no such first token was seen. The TTFT at the shadow's choice was never
    observed.
    """

    policy: str
    decided_by: str
    asked: int
    failed: int
    alike: int
    ttft_change_seconds: float | None
    ttft_error_seconds: float | None
    hit_change_tokens: float | None
    hit_error_tokens: float | None
    off_seconds: float | None


def with_error(change: float | None, error: float | None, unit: str, digits: int) -> str:
    """Return a change as text, with its standard error if known: `+0.120 ± 0.030 s`; `-` if there is no change."""
    if change is None:
        return "-"
    beside = "" if error is None else f" ± {error:,.{digits}f}"
    return f"{change:+,.{digits}f}{beside} {unit}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowHour(ShadowFigures):
    """The figures of a shadow for one hour, which begins at `at`."""

    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowReport:
    """The shadows of a pool in a range: by policy, and by hour with the newest first."""

    pool: str
    start: datetime
    end: datetime
    policies: list[ShadowFigures]
    hours: list[ShadowHour]
