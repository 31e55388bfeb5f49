"""The weight of a new instance on the ring, while other instances' caches are full.

A new instance has an empty cache, so each key that it takes over first costs a whole prefill. It starts with a share of
its anchors and gets the other anchors in a few steps. The steps are few because each step needs a new routing table. If
no instance of its role has served longer than the warming lasts, all caches are about equally empty, and the instance
gets its whole weight at once.
"""

from collections.abc import Iterable, Mapping

from fairlead.instances import InstanceState, Role
from fairlead.reconciling.observed import DesiredPool, ObservedInstance, Warming

STEPS = 4


def weights(desired: DesiredPool | None, observed: Iterable[ObservedInstance], now: float) -> Mapping[str, float]:
    """Return, for each instance that is still warming, the share (0-1) of its full weight; all others have their full
    weight.
    """
    instances = tuple(observed)
    found: dict[str, float] = {}
    for instance in instances:
        wanted = desired.role(instance.role) if desired is not None else None
        if wanted is not None and _warms(instance, instances, wanted.warming):
            share = _share(now - instance.state_since, wanted.warming)
            if share < 1.0:
                found[instance.id] = share
    return found


def _warms(instance: ObservedInstance, peers: tuple[ObservedInstance, ...], warming: Warming) -> bool:
    """Return whether the instance must warm up. It must warm up if another instance had already served long enough when
    this instance started serving.

    A decoding instance has no keys and no prefixes, so it need not warm up. An engine that had its full weight before
    and was not restarted still has its caches, so it need not warm up either.
    """
    return (
        instance.state is InstanceState.WARMING
        and warming.seconds > 0
        and instance.role is not Role.DECODE
        and not instance.is_warm
        and any(
            peer.role is instance.role
            and peer.state is InstanceState.SERVING
            and peer.state_since + warming.seconds <= instance.state_since
            for peer in peers
        )
    )


def _share(elapsed: float, warming: Warming) -> float:
    if elapsed >= warming.seconds:
        return 1.0
    step = max(0, int(elapsed * STEPS / warming.seconds))
    return warming.first_weight + (1.0 - warming.first_weight) * step / STEPS
