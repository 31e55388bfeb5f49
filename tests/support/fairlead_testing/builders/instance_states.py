"""The legal transitions between states of an instance, as `fairlead.instances` draws them."""

from fairlead.instances import InstanceState

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
    InstanceState.ASLEEP: frozenset({InstanceState.STARTING, InstanceState.WARMING, InstanceState.DRAINING, InstanceState.LOST}),
    InstanceState.GONE: frozenset(),
}
for _ready in set(InstanceState) - {InstanceState.GONE, InstanceState.ASLEEP}:
    TRANSITIONS[_ready] |= {InstanceState.ASLEEP}  # whoever put its engine to sleep


def is_legal(before: InstanceState, after: InstanceState) -> bool:
    """Return whether an instance may go from `before` to `after` in one step (staying is legal)."""
    return before == after or after in TRANSITIONS[before]
