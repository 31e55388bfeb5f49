"""Events that happen to a pool during a run: scaling, drains, role flips, failures and recoveries, changes by a
schedule, and events of the routers.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

from fairlead.instances import Role

Victims = Literal["newest", "cheapest"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleTo:
    """A change, at `at` seconds, of the number of instances with the role `role` to `instances`. New instances serve
    after `startup_seconds`. Surplus instances drain and leave; up to `asleep` of them sleep. Sleeping instances are the
    first to serve again, after `wake_seconds`.
    """

    at: float
    instances: int
    role: Role = Role.BOTH
    startup_seconds: float = 0.0
    asleep: int = 0
    wake_seconds: float = 0.0
    victims: Victims = "newest"
    """Which instances are removed: the newest instances, or the cheapest to remove by the operator's rule, which
    considers sessions, caches and requests.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """The drain and removal, at `at` seconds, of one instance with the role `role`. `place` is the instance's index
    among the serving instances, sorted by the cost of removing them, lowest first. If `is_replaced`, a new instance
    serves after `startup_seconds`.
    """

    at: float
    place: int
    role: Role = Role.BOTH
    is_replaced: bool = True
    startup_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Flip:
    """A change of one instance's role, which begins at `at` seconds. The instance of the role `source` that is cheapest
    to drain is drained. Once it is idle, it serves in the role `target` and keeps its cache.
    """

    at: float
    source: Role
    target: Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Fail:
    """The death of an instance at `at` seconds. `instance` is its index among the living instances that accept
    requests. `detected_after_seconds` later, the routing table lists it as Lost.
    """

    at: float
    instance: int
    detected_after_seconds: float = 2.0
    recovered_after_seconds: float | None = None
    """Seconds from the death until the instance serves again, with an empty cache; None = the instance never recovers.
    If the death is detected only after these seconds, the instance serves again when the death is detected.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """A change of the pool's settings at `at` seconds, as a schedule makes it. A setting that is None does not
    change.
    """

    at: float
    slo_ttft_seconds: float | None = None
    early_rejection: str | None = None
    headroom: float | None = None
    prefills_in_flight: int | None = None
    policy: str | None = None
    parameters: dict[str, Any] = field(default_factory=dict)
    """Parameters of `policy` or, if `policy` is None, of the policy in use. They replace all earlier parameters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartRouters:
    """A replacement of the serving routers by new routers, at `at` seconds. The replaced routers finish their requests.
    If `remember`, the new routers know the prefixes that the replaced routers remembered, as after a restart that keeps
    the disk.
    """

    at: float
    remember: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PartRouters:
    """A loss of all messages between routers for `for_seconds`, from `at` seconds on. The routers notice the loss after
    `noticed_after_seconds`. From then on each router decides alone until the loss ends.
    """

    at: float
    for_seconds: float
    noticed_after_seconds: float = 0.25


TimelineEvent = ScaleTo | Drain | Flip | Fail | Override | RestartRouters | PartRouters
