"""A pool's hash ring: each instance's share of the keys, and what a change of the instances would move."""

from dataclasses import dataclass

from fairlead.instances import InstanceState, Role
from fairlead.routing.contracts.catalogues import RingUse


@dataclass(frozen=True, slots=True, kw_only=True)
class RingInstance:
    """An instance's part of the ring: `anchors` points on each of two rings, and the share (0-1) of the keys that they
    own, mean over both. `fair_share` is its part of all anchors. `share_after` is the share after the proposed change,
    None without one.
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
    """The share (0-1) of the keys that would leave one instance for another."""

    source: str
    target: str
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RingChange:
    """What a change would move: the share of the keys, from and to which instances, and about how many bound sessions.

    All sessions of an instance that leaves move. Elsewhere a session follows its key only under a policy that places
    every request by the ring, and its key is not recorded: then the same part of an instance's sessions is counted as
    of its keys.
    """

    moved_share: float
    sessions_moved: int
    sessions_leaving: int
    """Sessions among `sessions_moved` whose instance leaves; an exact number."""
    imbalance: float | None
    moves: list[KeyMove]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ring:
    """The ring of the pool's present routing table.

    `imbalance` is by how much the largest share exceeds its fair share (0.1 = a tenth), None if no instance is on the
    ring. `change` answers the proposed change, None without one.
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
