"""Who wins when routers bind or move one session at the same time. Pure.

The first writer wins: a change counts only if its router knew the binding it replaces. A router knows a binding by the
version the API told it, or, before that answer has reached it, because the binding is its own change before this one
(`after`). So the first change of a router that loses takes down everything the router built on it, in the same report
or a later one, without anything to remember. Two things are not races: naming the host that holds the session (a sign
of life), and taking a session nobody holds.
"""

from dataclasses import dataclass
from enum import Enum

from fairlead.reports import BindingChange


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A session's current home; `instance` None = nobody's.

    `version` 0 = never bound. `change` is the id of the change that made it so.
    """

    instance: str | None
    version: int
    router: str
    change: str | None = None


class Verdict(Enum):
    """What to do with a change."""

    BIND = "bind"
    TOUCH = "touch"
    CONFLICT = "conflict"


def judge(change: BindingChange, held: Held) -> Verdict:
    """Whether a change binds, only confirms, or lost.

    A session the database has never seen takes any version its router knows: the database was restored from before it.
    Above the version of a session it does know, nothing is believed.
    """
    if held.instance is None:
        return Verdict.BIND if held.version == 0 or change.based_on <= held.version else Verdict.CONFLICT
    if change.instance == held.instance:
        return Verdict.TOUCH
    if change.based_on == held.version or (change.after is not None and change.after == held.change):
        return Verdict.BIND
    return Verdict.CONFLICT


def next_version(change: BindingChange, held: Held) -> int:
    """The version a change that binds gets: the next one, which for a session unknown here follows
    the one its router knew.
    """
    return (held.version or change.based_on) + 1
