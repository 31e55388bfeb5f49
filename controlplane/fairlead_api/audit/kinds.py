"""Tells people from the system in the audit log, and whose entry somebody may read. Pure."""

from fairlead_api.infra.spans import Sight
from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.audit import OPERATOR_EVENT, AuditKind

SYSTEM_ROLES = (AccessRole.SYSTEM_OPERATOR, AccessRole.SYSTEM_ROUTER)
CLUSTER = "cluster"
"""The role of entries about changes that were seen in the cluster."""

MACHINES = ("autoscaler", "controller", "operator")
"""Words in the field managers of programs that change objects by themselves: `horizontal-pod-autoscaler`,
`argocd-controller`, `kustomize-controller`. Others, such as `kubectl-edit`, are the tools of people."""


def kind_of(role: str, action: str, source: str) -> AuditKind:
    """Who acted. The index `ix_audit_log_human` says the same in SQL."""
    itself = role in SYSTEM_ROLES or action.startswith(OPERATOR_EVENT)
    machine = role == CLUSTER and any(word in source for word in MACHINES)
    return AuditKind.SYSTEM if itself or machine else AuditKind.HUMAN


def in_sight(subject: str, sight: Sight) -> bool:
    """Whether an entry about this object, such as `default/chat`, may be read by who sees these namespaces."""
    namespace, slash, _ = subject.partition("/")
    return sight is None or (bool(slash) and namespace in sight)
