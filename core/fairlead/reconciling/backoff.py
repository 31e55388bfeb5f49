"""Computes the time for which a failed or lost instance is kept before it is replaced.

This pause doubles with each failure in a row. The number of failures is stored on the pod, so no memory is needed. A
hash of the instance's name lengthens each pause by a different share, so that instances that failed together are not
replaced together.
"""

from xxhash import xxh3_64_intdigest

from fairlead.reconciling.observed import ObservedInstance, PodHealth, ReplicaLimits

_STRETCH = 0.25
"""Largest share by which a pause is stretched."""
_MOST_DOUBLINGS = 30


def replaced_at(instance: ObservedInstance, limits: ReplicaLimits) -> float:
    """Return the Unix time from which a lost instance may be replaced.

    A failed pod's pause is counted from its creation, so a pod that ran for long is replaced at once. The pause of an
    instance that may return is counted from its loss.
    """
    if instance.health is PodHealth.FAILED:
        return instance.created_at + _pause(instance, limits.failed_backoff_seconds, limits)
    since = instance.draining_since if instance.draining_since is not None else instance.state_since
    return since + _pause(instance, limits.lost_timeout_seconds, limits)


def failures_of_replacement(instance: ObservedInstance, limits: ReplicaLimits) -> int:
    """Return the number of consecutive failures to record on the replacement of this lost instance."""
    lived = instance.state_since - instance.created_at
    return 1 if lived >= limits.stable_seconds else instance.failures + 1


def _pause(instance: ObservedInstance, first: float, limits: ReplicaLimits) -> float:
    grown = min(max(first, limits.longest_backoff_seconds), first * 2.0 ** min(instance.failures, _MOST_DOUBLINGS))
    return grown * (1.0 + _STRETCH * xxh3_64_intdigest(instance.id.encode()) / 2.0**64)
