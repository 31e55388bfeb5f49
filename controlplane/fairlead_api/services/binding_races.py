"""Who wins when routers bind or move one session at the same time. Pure.

The first writer wins: a change counts only if its router knew the current version (`based_on`). Three things are not races: naming the host
that already holds the session (a sign of life), a further step of the router that made the last one and had not yet read its version back,
and taking a session nobody holds.
"""

from dataclasses import dataclass
from enum import Enum

from fairlead.reports import BindingChange


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A session's current home; `instance` None = nobody's. `version` 0 = never bound."""

    instance: str | None
    version: int
    router: str


class Verdict(Enum):
    """What to do with a change."""

    BIND = "bind"
    TOUCH = "touch"
    CONFLICT = "conflict"


def judge(change: BindingChange, held: Held, router: str) -> Verdict:
    """Whether `change` of `router` binds, only confirms, or lost."""
    if held.instance is None:
        return Verdict.BIND
    if change.instance == held.instance:
        return Verdict.TOUCH
    if change.based_on >= held.version:
        return Verdict.BIND
    if held.router == router and change.previous == held.instance:
        return Verdict.BIND
    return Verdict.CONFLICT


def next_version(change: BindingChange, held: Held) -> int:
    """Versions only grow, also past one the database has forgotten."""
    return max(held.version, change.based_on) + 1
