"""Instance states and roles, and which transitions are legal.

    Pending → Starting → Warming → Serving ⇄ Cordoned → Draining → Gone,  and Lost from any state but Gone.

Ring anchors exist exactly in Warming and Serving. New work may be placed exactly there too.
"""

from enum import StrEnum


class InstanceState(StrEnum):
    """Where an instance is in its life; stored, shown and sent on the wire by these words."""

    PENDING = "Pending"
    STARTING = "Starting"
    WARMING = "Warming"
    SERVING = "Serving"
    CORDONED = "Cordoned"
    DRAINING = "Draining"
    LOST = "Lost"
    GONE = "Gone"


class Role(StrEnum):
    """What part of a request an instance computes. Only `both` is accepted in pools today."""

    BOTH = "both"
    PREFILL = "prefill"
    DECODE = "decode"


ACCEPTING = frozenset({InstanceState.WARMING, InstanceState.SERVING})
"""States in which an instance has ring anchors and may be chosen for new requests."""

REACHABLE = ACCEPTING | {InstanceState.CORDONED, InstanceState.DRAINING}
"""States in which requests already dispatched are expected to finish."""

TRANSITIONS: dict[InstanceState, frozenset[InstanceState]] = {
    InstanceState.PENDING: frozenset(
        {InstanceState.STARTING, InstanceState.WARMING, InstanceState.DRAINING, InstanceState.LOST, InstanceState.GONE}
    ),
    InstanceState.STARTING: frozenset({InstanceState.WARMING, InstanceState.DRAINING, InstanceState.LOST, InstanceState.GONE}),
    InstanceState.WARMING: frozenset({InstanceState.SERVING, InstanceState.CORDONED, InstanceState.DRAINING, InstanceState.LOST}),
    InstanceState.SERVING: frozenset({InstanceState.CORDONED, InstanceState.DRAINING, InstanceState.LOST}),
    InstanceState.CORDONED: frozenset({InstanceState.SERVING, InstanceState.DRAINING, InstanceState.LOST}),
    InstanceState.DRAINING: frozenset({InstanceState.GONE, InstanceState.LOST}),
    InstanceState.LOST: frozenset({InstanceState.STARTING, InstanceState.WARMING, InstanceState.DRAINING, InstanceState.GONE}),
    InstanceState.GONE: frozenset(),
}


def is_legal(before: InstanceState, after: InstanceState) -> bool:
    """Whether an instance may go from `before` to `after` in one step (staying is legal)."""
    return before == after or after in TRANSITIONS[before]
