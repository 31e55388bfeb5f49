"""Events of the pool while the requests run: scaling, role flips, failures, recoveries, and values that a schedule
overrides.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

from fairlead.instances import Role

Victims = Literal["newest", "cheapest"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleTo:
    """At `at` seconds the pool has `instances` of `role`: new ones serve after `startup_seconds`, surplus ones drain
    and go. Up to `asleep` of these sleep instead, and are the first to serve again, after `wake_seconds`."""

    at: float
    instances: int
    role: Role = Role.BOTH
    startup_seconds: float = 0.0
    asleep: int = 0
    wake_seconds: float = 0.0
    victims: Victims = "newest"
    """Which instances are removed: the newest, or the cheapest by sessions, caches and requests, as the operator
    chooses.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """At `at` seconds an instance of `role` drains and is removed: the one at `place` among serving instances, sorted
    by the cost of their removal, lowest first. If `is_replaced`, it gets a successor, which serves after
    `startup_seconds`.
    """

    at: float
    place: int
    role: Role = Role.BOTH
    is_replaced: bool = True
    startup_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Flip:
    """At `at` seconds the cheapest instance of role `source` drains; when it is idle it takes the role `target` and
    keeps its memory.
    """

    at: float
    source: Role
    target: Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Fail:
    """At `at` seconds the instance numbered `instance` (by position among those alive) dies; the table says Lost
    `detected_after` later."""

    at: float
    instance: int
    detected_after_seconds: float = 2.0
    recovered_after_seconds: float | None = None
    """Seconds after its death when it serves again, with an empty cache; None = never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """At `at` seconds a schedule changes fields of the pool; None leaves a field unchanged."""

    at: float
    slo_ttft_seconds: float | None = None
    early_rejection: str | None = None
    headroom: float | None = None
    prefills_in_flight: int | None = None
    policy: str | None = None
    parameters: dict[str, Any] = field(default_factory=dict)
    """Parameters of the new `policy`, or of the present policy if there is no new one; they replace all earlier
    parameters.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartRouters:
    """At `at` seconds new routers replace those that serve. The old ones finish their requests. New ones recall what
    the old ones believed instances to hold, if they `remember`, as routers do whose disk survived.
    """

    at: float
    remember: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PartRouters:
    """No message passes between routers from `at` seconds on, for `for_seconds`. The routers notice it
    `noticed_after_seconds` later, and each decides on its own until the end.
    """

    at: float
    for_seconds: float
    noticed_after_seconds: float = 0.25


TimelineEvent = ScaleTo | Drain | Flip | Fail | Override | RestartRouters | PartRouters
