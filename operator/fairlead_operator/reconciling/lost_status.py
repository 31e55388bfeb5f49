"""Finds the numbers of instances of a pool whose status is lost, from its budgets and its instances. Pure.

The Kubernetes API does not promise to keep a status. A restore leaves it out, and a pool that is deleted without its
children and created again begins without one. Therefore the operator also writes the last decided number of instances
of each role on the role's budget (PodDisruptionBudget). A budget that remains from an earlier pool of the same name is
ignored; then the instances are counted.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from fairlead.instances import MAX_REPLICAS, Role
from fairlead.pools import PoolSpec
from fairlead.reconciling.observed import ObservedInstance, PodHealth, ReplicaLimits
from fairlead.scaling.specs import RatioMode, ScalingMode
from fairlead_operator.applying.ownership import is_owned
from fairlead_operator.manifests import REPLICAS_ANNOTATION, budget_name
from fairlead_operator.pool_identity import PoolIdentity
from fairlead_operator.reconciling.scaling import read_memory
from fairlead_operator.times import parse_time

NOTHING: Mapping[Role, int] = MappingProxyType({})


def is_lost(spec: PoolSpec | None, status: Mapping[str, Any]) -> bool:
    """Return whether the pool's status was lost. A lost status lacks a number that every status has after the first
    round.
    """
    if spec is None:
        return False
    roles = {role.name.value for role in spec.roles}
    known = {role.get("name") for role in status.get("roles") or () if "desired" in role}
    follows = spec.scaling.mode is not ScalingMode.FIXED or any(ratio.mode is not RatioMode.FIXED for _, ratio in spec.ratios())
    remembered = {role.role.value for role in read_memory(status).roles}
    return "lastOrdinal" not in status or not roles <= known or (follows and not roles <= remembered)


def standing_numbers(
    spec: PoolSpec, identity: PoolIdentity, budgets: Iterable[Mapping[str, Any]], instances: Iterable[ObservedInstance]
) -> Mapping[Role, int]:
    """Return the present number of instances of each role. It is the number on the role's own budget or, without one,
    the number of the role's instances that are not being removed. A role with neither has no entry.
    """
    own = {item["metadata"]["name"]: item["metadata"] for item in budgets if is_owned(item["metadata"], identity.uid)}
    seen = tuple(instances)
    found = {}
    for role in spec.roles:
        told = str((own.get(budget_name(identity, role.name), {}).get("annotations") or {}).get(REPLICAS_ANNOTATION, ""))
        staying = sum(1 for one in seen if (one.flip_to or one.role) is role.name and _stays(one))
        if told.isdecimal() and len(told) <= len(str(MAX_REPLICAS)) and int(told) <= MAX_REPLICAS:
            found[role.name] = int(told)
        elif staying:
            found[role.name] = staying
    return found


def _stays(instance: ObservedInstance) -> bool:
    """Return whether the instance counts towards the desired number. An instance that is being drained counts, because
    its successor will replace it, unless it is drained because the pool had too many instances.
    """
    is_over = instance.terminating or (instance.adopted and instance.health is PodHealth.FAILED)
    return not is_over and not instance.drained_as_surplus


def goes_on_from(spec: PoolSpec | None, previous: PoolSpec | None, standing: Mapping[Role, int]) -> Mapping[Role, int]:
    """Return the number of instances of each role from which scaling continues if its memory is empty: the present
    numbers (`standing`), or nothing.

    `previous` is the spec that was in force before, None if it is lost too. The result is empty if `previous` did not
    scale by load, because then scaling had nothing to remember. It is also empty if another number of instances has
    been declared since.
    """
    if spec is None or previous is None:
        return standing
    followed = previous.scaling.mode is ScalingMode.SLO or any(ratio.mode is RatioMode.AUTO for _, ratio in previous.ratios())
    return standing if followed and _declared(previous) == _declared(spec) else NOTHING


def _declared(spec: PoolSpec) -> tuple[object, ...]:
    return (spec.replicas, *(role.replicas for role in spec.roles))


def ordinals_given(pool: Mapping[str, Any], limits: ReplicaLimits, now: float) -> int:
    """Return an upper bound of the ordinals given since the pool was created: the pool's age times the limit of
    creations per second; 0 if its age is unknown.
    """
    created = parse_time(pool["metadata"].get("creationTimestamp"))
    return 0 if created is None else int(max(0.0, now - created) + 1) * limits.creations_per_second
