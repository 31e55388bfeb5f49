"""Decides which router wins when several routers bind or move one session at the same time. Pure.

The first writer wins: a change counts only if its router knew the binding that the change replaces. A router knows a
binding in one of two ways: it has the binding's version from the API, or the binding is the router's own previous
change, whose version the API has not returned yet (`after`). So when a router's change loses, every later change that
is based on the lost change also loses, in the same report or in a later report. Lost changes need not be remembered.

Two cases are not races: a change that names the instance which already holds the session (a sign of life), and a change
that claims a session which no instance holds. On an instance with data-parallel ranks, one rank holds the session; a
change that names another rank is a move, unless the old or the new binding names no rank.
"""

from dataclasses import dataclass
from enum import Enum

from fairlead.reports.bindings import BindingChange


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """The instance that holds a session now, and the rank of that instance. `instance` None = no instance holds the
    session.

    `version` 0 = never bound. `change` is the id of the change that created this binding.
    """

    instance: str | None
    version: int
    router: str
    change: str | None = None
    rank: int | None = None


class Verdict(Enum):
    """Whether a binding change is stored, or loses the race."""

    BIND = "bind"
    TOUCH = "touch"
    CONFLICT = "conflict"


def judge(change: BindingChange, held: Held) -> Verdict:
    """Return the verdict on a change: it binds the session, it only confirms the session's binding, or it lost the
    race.

    The database may have been restored from a backup that is older than the session. So if the database has never seen
    the session, a change is accepted whatever version its router knew. For a session in the database, a version above
    the stored version is not trusted.
    """
    if held.instance is None:
        return Verdict.BIND if held.version == 0 or change.based_on <= held.version else Verdict.CONFLICT
    if change.instance == held.instance and (change.rank == held.rank or change.rank is None or held.rank is None):
        return Verdict.TOUCH
    if change.based_on == held.version or (change.after is not None and change.after == held.change):
        return Verdict.BIND
    return Verdict.CONFLICT


def next_version(change: BindingChange, held: Held) -> int:
    """Return the version that a change of a binding gets: the stored version plus one. If the database does not know
    the session, it is the version that the router knew, plus one.
    """
    return (held.version or change.based_on) + 1
