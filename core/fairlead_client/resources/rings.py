"""A pool's hash ring: each instance's share of the keys, and the effect of a change of the instances."""

from dataclasses import dataclass

from fairlead.instances import InstanceState, Role
from fairlead.routing.contracts.catalogues import RingUse


@dataclass(frozen=True, slots=True, kw_only=True)
class RingInstance:
    """An instance's part of the ring: the number of its points (`anchors`) on each of two rings, and its share (0-1) of
    the keys, as the mean over both. `fair_share` is its share of all anchors. `share_after` is the share after the
    proposed change, None without one.
    """

    id: str
    role: Role
    state: InstanceState
    weight: float
    anchors: int
    key_share: float
    fair_share: float
    bound_sessions: int
    share_after: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyMove:
    """The share (0-1) of the keys that would move from one instance to another."""

    source: str
    target: str
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RingChange:
    """The effect of a change of the ring: the share of the keys that moves, the instances from and to which the keys
    move, and the approximate number of bound sessions that move.

    All sessions of a removed instance move. Other sessions follow their keys only under a policy that places every
    request by the ring. Keys are not recorded, so an instance's sessions are assumed to move in proportion to its keys.
    """

    moved_share: float
    sessions_moved: int
    sessions_leaving: int
    """The number of sessions among `sessions_moved` whose instance is removed; exact."""
    imbalance: float | None
    moves: list[KeyMove]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ring:
    """The ring of the pool's present routing table.

    `imbalance` is the excess of the largest share over its fair share (0.1 = a tenth), None if no instance is on the
    ring. `change` is the effect of the proposed change, None without one.
    """

    pool: str
    policy: str
    ring_use: RingUse
    table_version: int
    anchors_per_instance: int
    anchors: int
    imbalance: float | None
    instances: list[RingInstance]
    change: RingChange | None = None
