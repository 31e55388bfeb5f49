"""The identity of the pool that owns objects, as those objects reference it."""

from dataclasses import dataclass
from typing import Any

from fairlead.instance_marks import POOL_LABEL
from fairlead.instances import Role
from fairlead.pools import GROUP, KIND, VERSION
from fairlead_operator.pod_marks import ROLE_LABEL


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolIdentity:
    """Identifies one pool: its namespace, name and uid. The objects that the pool owns reference it by these."""

    namespace: str
    name: str
    uid: str

    def owner_reference(self) -> dict[str, Any]:
        """Return the owner reference that makes the pool the controller of a child, so that deleting the pool deletes
        the child.
        """
        return {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": KIND,
            "name": self.name,
            "uid": self.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }

    def reference(self) -> dict[str, Any]:
        """Return the reference to the pool that an Event needs."""
        metadata = {"namespace": self.namespace, "name": self.name, "uid": self.uid}
        return {"apiVersion": f"{GROUP}/{VERSION}", "kind": KIND, "metadata": metadata}

    def selector(self, role: Role | None = None) -> str:
        """Return the label selector of the pool's pods, or of one role's pods."""
        return f"{POOL_LABEL}={self.name}" + (f",{ROLE_LABEL}={role.value}" if role is not None else "")
