"""Events of the pool during a run: scaling, role flips, failures, recoveries, and values that a schedule overrides."""

from dataclasses import dataclass, field
from typing import Any, Literal

from fairlead.instances import Role

Victims = Literal["newest", "cheapest"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleTo:
    """A change of the number of instances with the role `role` to `instances`, at `at` seconds. New instances serve
    after `startup_seconds`; surplus instances drain and are removed. Up to `asleep` of the surplus instances sleep
    instead, and are the first to serve again, after `wake_seconds`.
    """

    at: float
    instances: int
    role: Role = Role.BOTH
    startup_seconds: float = 0.0
    asleep: int = 0
    wake_seconds: float = 0.0
    victims: Victims = "newest"
    """Which instances are removed: the newest; or the cheapest to remove, by sessions, caches and requests, as the
    operator chooses.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """The drain and removal of one instance with the role `role`, at `at` seconds. `place` is its index among the
    serving instances, sorted by the cost of their removal, lowest first. If `is_replaced`, a new instance takes over,
    which serves after `startup_seconds`.
    """

    at: float
    place: int
    role: Role = Role.BOTH
    is_replaced: bool = True
    startup_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Flip:
    """A change of role, beginning at `at` seconds: the cheapest instance with the role `source` drains; once it is idle
    it gets the role `target` and keeps its memory.
    """

    at: float
    source: Role
    target: Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Fail:
    """The death of an instance at `at` seconds. `instance` is its index among the living instances. The routing table
    lists it as Lost `detected_after_seconds` later.
    """

    at: float
    instance: int
    detected_after_seconds: float = 2.0
    recovered_after_seconds: float | None = None
    """Seconds from the death until the instance serves again, with an empty cache; None = never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """A change of fields of the pool at `at` seconds, as made by a schedule; None leaves a field unchanged."""

    at: float
    slo_ttft_seconds: float | None = None
    early_rejection: str | None = None
    headroom: float | None = None
    prefills_in_flight: int | None = None
    policy: str | None = None
    parameters: dict[str, Any] = field(default_factory=dict)
    """Parameters of the new `policy`, or of the present policy if there is no new one. They replace all earlier
    parameters.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartRouters:
    """A replacement of the serving routers by new ones, at `at` seconds. The old routers finish their requests. If the
    new routers `remember`, they know the assumed cache contents of instances from the old routers, like routers whose
    disk was kept.
    """

    at: float
    remember: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PartRouters:
    """A loss of all messages between routers for `for_seconds`, beginning at `at` seconds. The routers notice it
    `noticed_after_seconds` later, and each decides alone until the loss is over.
    """

    at: float
    for_seconds: float
    noticed_after_seconds: float = 0.25


TimelineEvent = ScaleTo | Drain | Flip | Fail | Override | RestartRouters | PartRouters
