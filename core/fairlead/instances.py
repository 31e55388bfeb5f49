"""Instance states and roles, and the legal transitions between states.

    Pending → Starting → Warming → Serving ⇄ Cordoned → Draining → Gone,  and Lost from any state but Gone.

A drained instance that changes its role goes from Draining to Warming. An instance has ring anchors exactly in Warming
and Serving, and only then may it get new work.
"""

from enum import StrEnum


class InstanceState(StrEnum):
    """The stage of an instance's life. These words are stored, shown and sent on the wire."""

    PENDING = "Pending"
    STARTING = "Starting"
    WARMING = "Warming"
    SERVING = "Serving"
    CORDONED = "Cordoned"
    DRAINING = "Draining"
    LOST = "Lost"
    GONE = "Gone"


class Role(StrEnum):
    """The part of a request that an instance computes: `both`, or the two parts apart."""

    BOTH = "both"
    PREFILL = "prefill"
    DECODE = "decode"


ACCEPTING = frozenset({InstanceState.WARMING, InstanceState.SERVING})
"""States in which an instance has ring anchors and may be chosen for new requests."""

REACHABLE = ACCEPTING | {InstanceState.CORDONED, InstanceState.DRAINING}
"""States in which requests already dispatched to the instance are expected to finish."""

TRANSITIONS: dict[InstanceState, frozenset[InstanceState]] = {
    InstanceState.PENDING: frozenset(
        {
            InstanceState.STARTING,
            InstanceState.WARMING,
            InstanceState.CORDONED,
            InstanceState.DRAINING,
            InstanceState.LOST,
            InstanceState.GONE,
        }
    ),
    InstanceState.STARTING: frozenset(
        {InstanceState.WARMING, InstanceState.CORDONED, InstanceState.DRAINING, InstanceState.LOST, InstanceState.GONE}
    ),
    InstanceState.WARMING: frozenset({InstanceState.SERVING, InstanceState.CORDONED, InstanceState.DRAINING, InstanceState.LOST}),
    InstanceState.SERVING: frozenset({InstanceState.CORDONED, InstanceState.DRAINING, InstanceState.LOST}),
    InstanceState.CORDONED: frozenset({InstanceState.SERVING, InstanceState.DRAINING, InstanceState.LOST}),
    InstanceState.DRAINING: frozenset({InstanceState.WARMING, InstanceState.GONE, InstanceState.LOST}),
    InstanceState.LOST: frozenset(
        {InstanceState.STARTING, InstanceState.WARMING, InstanceState.CORDONED, InstanceState.DRAINING, InstanceState.GONE}
    ),
    InstanceState.GONE: frozenset(),
}


MAX_REPLICAS = 4096
"""Maximum number of instances of a role, and of every number of instances that a pool's spec declares."""

LEAST_WEIGHT, MOST_WEIGHT = 0.01, 100.0
"""Bounds of an instance's weight on the hash ring: its part of the keys as a multiple of the others', which have 1."""


def weight_of(written: str | None) -> float:
    """The weight that a person wrote at an instance; 1 without one, and where it is not a number within the bounds."""
    try:
        weight = float(written) if written is not None else 1.0
    except ValueError:
        return 1.0
    return weight if LEAST_WEIGHT <= weight <= MOST_WEIGHT else 1.0


def is_legal(before: InstanceState, after: InstanceState) -> bool:
    """Whether an instance may go from `before` to `after` in one step (staying is legal)."""
    return before == after or after in TRANSITIONS[before]
