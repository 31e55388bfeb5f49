"""The kinds of objects that this server knows: the class that describes a kind, and the built-in kinds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from processkube.kubernetes_api.cel.rules import RuleTree
from processkube.kubernetes_api.objects.objects import Object
from processkube.kubernetes_api.schemas import builtin as builtin_schemas

OBJECT_META = "io.k8s.api.v1.ObjectMeta"
ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
CREATE_ONLY = ("create",)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalePaths:
    """The paths of the fields that the scale subresource shows, as dotted JSON paths such as `.spec.replicas`."""

    spec_replicas: str
    status_replicas: str
    selector: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrinterColumn:
    """An additional column of a custom resource in `kubectl get`.

    A column with the priority 0 is always shown. A column with a higher priority is shown only with `-o wide`.
    """

    name: str
    type: str
    json_path: str
    description: str = ""
    format: str = ""
    priority: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceKind:
    """A kind in one version, with all data that is needed to serve objects of this kind."""

    group: str
    version: str
    plural: str
    kind: str
    singular: str
    namespaced: bool
    schema: Object
    """The structural schema, in which references are resolved; it must not be changed."""
    definition: str = ""
    """Name of the OpenAPI definition of a built-in kind; "" for custom resources."""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    has_status: bool = False
    has_generation: bool = False
    scale: ScalePaths | None = None
    columns: tuple[PrinterColumn, ...] = ()
    selectable_fields: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    subresources: tuple[str, ...] = ()
    """Names of subresources that have their own code, such as `log` and `eviction` of Pods."""
    custom: bool = False
    rules: RuleTree | None = None
    stored_in: str = ""
    """If this kind shares the storage of another kind, the storage key of the other kind; "" if it has its own storage.
    For example, Events of events.k8s.io share the storage of core Events.
    """
    storage_version: str = ""
    definition_schema: Object = field(default_factory=dict)
    """The schema of a custom resource as the user wrote it, for OpenAPI; empty for built-in kinds."""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def list_kind(self) -> str:
        return f"{self.kind}List"

    @property
    def resource(self) -> str:
        """The plural, followed by the group, as in messages and in the store: `widgets.acme.dev`, or `pods` in the core
        group.
        """
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def storage(self) -> str:
        return self.stored_in or self.resource


_SELECTABLE: Mapping[str, tuple[str, ...]] = {
    "pods": (
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ),
    "events": (
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "source",
        "type",
    ),
    "secrets": ("type",),
    "namespaces": ("status.phase",),
    "nodes": ("spec.unschedulable",),
    "services": ("spec.clusterIP", "spec.type"),
    "replicasets": ("status.replicas",),
}
_SCALE = ScalePaths(spec_replicas=".spec.replicas", status_replicas=".status.replicas", selector=".spec.selector")

_FURTHER: Mapping[str, tuple[str, ...]] = {
    "pods": ("binding", "eviction", "log"),
    "namespaces": ("finalize",),
    "serviceaccounts": ("token",),
    "services": ("proxy",),
}

# group, version, kind, plural, namespaced, short names, categories, flags.
# Flags: s = status subresource, g = generation, x = scale subresource, c = create only.
_TABLE: tuple[tuple[str, str, str, str, bool, str, str, str], ...] = (
    ("", "v1", "Namespace", "namespaces", False, "ns", "", "s"),
    ("", "v1", "Pod", "pods", True, "po", "all", "sg"),
    ("", "v1", "Service", "services", True, "svc", "all", "s"),
    ("", "v1", "Endpoints", "endpoints", True, "ep", "", ""),
    ("", "v1", "ConfigMap", "configmaps", True, "cm", "", ""),
    ("", "v1", "Secret", "secrets", True, "", "", ""),
    ("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", True, "pvc", "", "s"),
    ("", "v1", "ServiceAccount", "serviceaccounts", True, "sa", "", ""),
    ("", "v1", "Event", "events", True, "ev", "", ""),
    ("", "v1", "Node", "nodes", False, "no", "", "s"),
    ("apps", "v1", "Deployment", "deployments", True, "deploy", "all", "sgx"),
    ("apps", "v1", "ReplicaSet", "replicasets", True, "rs", "all", "sgx"),
    ("apps", "v1", "StatefulSet", "statefulsets", True, "sts", "all", "sgx"),
    ("apps", "v1", "DaemonSet", "daemonsets", True, "ds", "all", "sg"),
    ("apps", "v1", "ControllerRevision", "controllerrevisions", True, "", "", ""),
    ("batch", "v1", "Job", "jobs", True, "", "all", "sg"),
    ("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", True, "pdb", "", "sg"),
    ("coordination.k8s.io", "v1", "Lease", "leases", True, "", "", ""),
    ("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", True, "", "", "g"),
    ("events.k8s.io", "v1", "Event", "events", True, "ev", "", ""),
    ("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", True, "netpol", "", "g"),
    ("networking.k8s.io", "v1", "Ingress", "ingresses", True, "ing", "", "sg"),
    ("rbac.authorization.k8s.io", "v1", "Role", "roles", True, "", "", ""),
    ("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings", True, "", "", ""),
    ("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", False, "", "", ""),
    ("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings", False, "", "", ""),
    ("resource.k8s.io", "v1", "ResourceClaim", "resourceclaims", True, "", "", "s"),
    ("resource.k8s.io", "v1", "ResourceClaimTemplate", "resourceclaimtemplates", True, "", "", ""),
    ("resource.k8s.io", "v1", "DeviceClass", "deviceclasses", False, "", "", "g"),
    ("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", False, "pc", "", "g"),
    ("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", False, "crd,crds",
     "api-extensions", "sg"),
    ("authorization.k8s.io", "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", False, "", "", "c"),
    ("authorization.k8s.io", "v1", "SelfSubjectRulesReview", "selfsubjectrulesreviews", False, "", "", "c"),
    ("authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews", False, "", "", "c"),
    ("authentication.k8s.io", "v1", "TokenReview", "tokenreviews", False, "", "", "c"),
    ("authentication.k8s.io", "v1", "SelfSubjectReview", "selfsubjectreviews", False, "", "", "c"),
)  # fmt: skip


def builtin_kinds() -> tuple[ResourceKind, ...]:
    """Return all built-in kinds, in the order in which discovery lists them."""
    return tuple(_builtin(*row) for row in _TABLE)


def _builtin(group: str, version: str, kind: str, plural: str, namespaced: bool, short: str, categories: str, flags: str) -> ResourceKind:
    definition = f"io.k8s.api.{version}.{kind}"
    if kind == "Event":
        definition = f"io.k8s.api.{'events' if group else 'core'}.{version}.{kind}"
    if kind == "ResourceClaim":
        definition = f"io.k8s.api.resource.{version}.{kind}"
    return ResourceKind(
        group=group,
        version=version,
        kind=kind,
        plural=plural,
        singular=kind.lower(),
        namespaced=namespaced,
        schema=builtin_schemas.resolved(definition),
        definition=definition,
        short_names=tuple(filter(None, short.split(","))),
        categories=tuple(filter(None, categories.split(","))),
        has_status="s" in flags,
        has_generation="g" in flags,
        scale=_SCALE if "x" in flags else None,
        selectable_fields=_SELECTABLE.get(plural, ()) if not (kind == "Event" and group) else (),
        verbs=CREATE_ONLY if "c" in flags else ALL_VERBS,
        subresources=_FURTHER.get(plural, ()),
        stored_in="events" if kind == "Event" else "",
        storage_version=version,
    )
