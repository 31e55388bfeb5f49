"""Shadows: what policies that only advise would have decided, predicted."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowFigures:
    """How one policy that only advises (`policy`) compares with the one that decided (`decided_by`).

    It was asked for `asked` requests, and failed for `failed` of them; `alike` times it named the same instance. Where
    it named another one, the predicted TTFT there was on average `ttft_change_seconds` longer (negative: shorter), and
    `hit_change_tokens` more of the prompt were cached there; both are None where there is no such request. Errors are
    standard errors of the mean, counted by sessions, since requests of a session are alike; None with fewer than two.

    Both predictions are the router's, by one formula. `off_seconds` is how far it was off on average, in either
    direction, for the instances that did serve; None where no such first token was seen. The TTFT that the shadow's
    choice would have had was never observed.
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
    """A change in words, with its standard error if that is known: `+0.120 ± 0.030 s`; `-` if there is none."""
    if change is None:
        return "-"
    beside = "" if error is None else f" ± {error:,.{digits}f}"
    return f"{change:+,.{digits}f}{beside} {unit}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowHour(ShadowFigures):
    """The same of one hour, which begins at `at`."""

    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowReport:
    """The shadows of a pool in a range, by policy, and by hour with the newest first."""

    pool: str
    start: datetime
    end: datetime
    policies: list[ShadowFigures]
    hours: list[ShadowHour]
