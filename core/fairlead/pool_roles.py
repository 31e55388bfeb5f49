"""The typed spec of an InferencePoolRole: the number of instances of one role, as an object of its own.

A CRD has one scale subresource, so a pool of prefill and decode has an object per role, which `kubectl scale` and a
HorizontalPodAutoscaler can name. The operator creates the object. While the pool leaves `roles[].replicas` out, the
object's number is the role's number. Otherwise the object is pinned to the pool's number, and scaling it is refused.
"""

# ruff: noqa: RUF009 (the calls return dataclasses.field(...), which ruff knows only by name)

from dataclasses import dataclass
from typing import ClassVar

from fairlead.instances import MAX_REPLICAS, Role
from fairlead.pools import MAX_NAME
from fairlead.schemas.shapes import Rule, text, whole

PLURAL = "inferencepoolroles"
KIND = "InferencePoolRole"


def role_object_name(pool: str, role: Role) -> str:
    """Return the name of the object for a pool's role: `chat-prefill`."""
    return f"{pool}-{role.value}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRoleSpec:
    """A whole, valid spec of an InferencePoolRole."""

    RULES: ClassVar = (
        Rule(
            cel="!has(self.pinned) || self.replicas == self.pinned",
            holds=lambda spec: spec.pinned is None or spec.replicas == spec.pinned,
            field="replicas",
            message="the InferencePool declares the replicas of this role; "
            "change roles[].replicas of the InferencePool, or remove it there to scale this object",
        ),
    )

    pool: str = text(
        "Name of the InferencePool, in the same namespace.",
        pattern="^[a-z]([-a-z0-9]*[a-z0-9])?$",
        max_length=MAX_NAME,
        rules=(Rule(cel="self == oldSelf", message="pool cannot be changed; the operator makes the object of each pool's role"),),
    )
    role: Role = text(
        "Role of the pool.",
        enum=(Role.PREFILL.value, Role.DECODE.value),
        convert=Role,
        rules=(Rule(cel="self == oldSelf", message="role cannot be changed; the operator makes the object of each pool's role"),),
    )
    replicas: int = whole(
        "Desired number of instances; the pool's roles[].minReplicas and maxReplicas bound it.", minimum=1, maximum=MAX_REPLICAS
    )
    pinned: int | None = whole(
        "The number that the pool declares in roles[].replicas; while pinned is set, replicas must equal it. The operator writes it.",
        None,
        minimum=1,
        maximum=MAX_REPLICAS,
    )
