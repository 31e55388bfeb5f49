"""Events of the pool during the run: scaling, role flips, failures, recoveries, and values that a schedule
overrides.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

from fairlead.instances import Role

Victims = Literal["newest", "cheapest"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleTo:
    """A change, at `at` seconds, of the number of instances of `role` to `instances`: new instances serve after
    `startup_seconds`, surplus instances drain and are removed. Up to `asleep` of the surplus instances sleep instead,
    and are the first to serve again, after `wake_seconds`.
    """

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
    """The drain and removal, at `at` seconds, of an instance of `role`: the one at `place` among serving instances,
    sorted by the cost of their removal, lowest first. If `is_replaced`, it gets a successor, which serves after
    `startup_seconds`.
    """

    at: float
    place: int
    role: Role = Role.BOTH
    is_replaced: bool = True
    startup_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Flip:
    """A change of role, beginning at `at` seconds: the cheapest instance of role `source` drains; when it is idle it
    takes the role `target` and keeps its memory.
    """

    at: float
    source: Role
    target: Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Fail:
    """The death, at `at` seconds, of the instance numbered `instance` (by position among living instances); the table
    shows it as Lost `detected_after` later.
    """

    at: float
    instance: int
    detected_after_seconds: float = 2.0
    recovered_after_seconds: float | None = None
    """Seconds after the death when the instance serves again, with an empty cache; None = never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """A change of fields of the pool by a schedule, at `at` seconds; None leaves a field unchanged."""

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
    """A replacement of the serving routers by new routers, at `at` seconds. The old routers finish their requests. If
    new routers `remember`, they recall what the old ones believed instances to hold, as routers do whose disk survived.
    """

    at: float
    remember: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PartRouters:
    """A loss of all messages between routers from `at` seconds on, for `for_seconds`. The routers notice it
    `noticed_after_seconds` later, and each decides on its own until the end.
    """

    at: float
    for_seconds: float
    noticed_after_seconds: float = 0.25


TimelineEvent = ScaleTo | Drain | Flip | Fail | Override | RestartRouters | PartRouters
