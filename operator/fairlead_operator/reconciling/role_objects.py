"""The InferencePoolRole objects of a pool: what they ask for, and their status. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from fairlead.conditions.roles import count
from fairlead.instances import InstanceState, Role
from fairlead.pool_roles import role_object_name
from fairlead.reconciling.observed import DesiredRole, ObservedInstance
from fairlead_operator.applying.ownership import is_orphan, is_owned
from fairlead_operator.observing.field_managers import spec_manager
from fairlead_operator.pool_identity import PoolIdentity
from fairlead_operator.reconciling.roles import RoleObject, WantedReplicas


def read_role_objects(documents: Iterable[Mapping[str, Any]], identity: PoolIdentity) -> dict[Role, RoleObject]:
    """The objects of the pool's roles; those of another owner, or of another name than ours, are left out."""
    found = {document["metadata"]["name"]: document for document in documents}
    objects = {}
    for role in (Role.PREFILL, Role.DECODE):
        document = found.get(role_object_name(identity.name, role))
        if document is None or not (is_owned(document["metadata"], identity.uid) or is_orphan(document["metadata"], identity)):
            continue
        manager = spec_manager(document["metadata"], "replicas")
        objects[role] = RoleObject(document=document, replicas=int(document["spec"]["replicas"]), manager=manager)
    return objects


def role_object_status(
    document: Mapping[str, Any], role: DesiredRole, declared: WantedReplicas, instances: tuple[ObservedInstance, ...], selector: str
) -> dict[str, Any]:
    """The status of a role's object.

    Its message is about the declared number; the number that a schedule makes of it is in the pool's status.
    """
    return {
        "observedGeneration": int(document["metadata"].get("generation") or 0),
        "replicas": sum(1 for instance in instances if instance.draining_since is None and not instance.terminating),
        "serving": count(instances, InstanceState.SERVING),
        "desired": role.replicas,
        "message": declared.reason,
        "selector": selector,
    }
