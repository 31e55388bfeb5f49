"""The parts of the conditions that are about one role: whether it lacks instances, whether it scales, and whether it is
below its minimum.
"""

from collections.abc import Iterable

from fairlead.instances import ACCEPTING, InstanceState, Role
from fairlead.pool_states import INSTANCES_STARTING
from fairlead.reconciling.observed import DesiredRole, ObservedInstance

SHORTAGES = ("InstancesLost", "WaitingForControlPlane", "InstancesCordoned", INSTANCES_STARTING)
"""Reasons why fewer instances serve than desired, the worst reason first."""

_STARTING = (InstanceState.PENDING, InstanceState.STARTING, InstanceState.WARMING)


def count(instances: Iterable[ObservedInstance], *states: InstanceState) -> int:
    """Return the number of instances that are in one of these states and whose pods are not being deleted."""
    return sum(1 for instance in instances if instance.state in states and not instance.terminating)


def serving_words(role: DesiredRole, instances: Iterable[ObservedInstance]) -> str:
    """Return words for the number of serving instances, such as `3 of 4 prefill instances serve`. `instances` are the
    instances of this role only.
    """
    serving = count(instances, InstanceState.SERVING)
    more = f", and {serving - role.replicas} more" if serving > role.replicas else ""
    return f"{min(serving, role.replicas)} of {role.replicas} {_noun(role)} serve{more}"


def asleep_words(instances: Iterable[ObservedInstance]) -> str:
    """Say how many instances sleep, for example `, and 2 sleep`; empty if no instance sleeps."""
    asleep = count(instances, InstanceState.ASLEEP)
    return f", and {asleep} sleep{'s' if asleep == 1 else ''}" if asleep else ""


def shortage(role: DesiredRole, instances: tuple[ObservedInstance, ...], *, api_answers: bool) -> tuple[str, str] | None:
    """Return a reason of SHORTAGES and a sentence if fewer instances serve than desired; None if enough instances
    serve.
    """
    serving, words = count(instances, InstanceState.SERVING), serving_words(role, instances)
    if serving >= role.replicas:
        return None
    lost = count(instances, InstanceState.LOST)
    if lost:
        return "InstancesLost", f"{words}, {lost} lost"
    if not api_answers and count(instances, InstanceState.WARMING):
        return "WaitingForControlPlane", f"{words}; ready instances wait for the control API to list them"
    cordoned = count(instances, InstanceState.CORDONED)
    if cordoned and serving + cordoned >= role.replicas:
        return "InstancesCordoned", f"{words}, {cordoned} cordoned"
    return INSTANCES_STARTING, words


def scaling_words(role: DesiredRole, instances: tuple[ObservedInstance, ...]) -> str | None:
    """Return words for the difference between the role's present and desired number of instances; None if exactly the
    desired number exists and no instance is starting.
    """
    live = sum(1 for instance in instances if instance.counts)
    starting = count(instances, *_STARTING)
    return f"{live} of {role.replicas} {_noun(role)} exist, {starting} start" if starting or live != role.replicas else None


def below_minimum(role: DesiredRole, instances: tuple[ObservedInstance, ...]) -> str | None:
    """Return a sentence if fewer instances than the minimum take requests and no further instances are starting; None
    otherwise.
    """
    accepting = count(instances, *ACCEPTING)
    if role.replicas == 0 or accepting >= role.min_replicas or count(instances, InstanceState.PENDING, InstanceState.STARTING):
        return None
    return f"{accepting} {_noun(role)} take requests, less than the minimum of {role.min_replicas}"


def _noun(role: DesiredRole) -> str:
    return "instances" if role.role is Role.BOTH else f"{role.role.value} instances"
