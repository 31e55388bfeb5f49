"""Annotations on Kubernetes objects. Some annotations mark an applied plan, so that the operator's report of the change
can be attributed to the plan. Others name the owner of an object: a GitOps tool, whose objects must be changed in Git,
or a file, which must be edited instead. Pure.
"""

from collections.abc import Iterable, Mapping

FIELD_MANAGER = "fairlead-api"
"""The field manager of every change that the API makes. A plan's annotations count only on changes of this field
manager.
"""
CHANGED_BY = "fairlead.dev/changed-by"
CHANGE_REASON = "fairlead.dev/change-reason"
PLAN = "fairlead.dev/plan"


OWNER = "fairlead.dev/owner"
"""The annotation that names the owner of a pool explicitly: the file that `fairlead serve` reads."""

_MANAGERS = (
    ("argocd-controller", "Argo CD"),
    ("argocd-application-controller", "Argo CD"),
    ("kustomize-controller", "Flux"),
    ("helm-controller", "Flux"),
    ("helm", "Helm"),
    ("configsync", "Config Sync"),
    ("kapp-server-side-fieldmanager", "kapp"),
    ("Terraform", "Terraform"),
    ("pulumi-kubernetes", "Pulumi"),
    ("pulumi-resource-kubernetes", "Pulumi"),
)
"""Names of tools by their field managers. A key may also be the first part of a field manager's name, up to a hyphen.
"""

_MANAGED_BY = {"Helm": "Helm", "pulumi": "Pulumi", "kro": "kro", "configmanagement.gke.io": "Config Sync"}
"""Names of tools by the value of the label `app.kubernetes.io/managed-by` that each tool sets."""


def owner_of(labels: Mapping[str, str], annotations: Mapping[str, str], managers: Iterable[str] = ()) -> str | None:
    """Return the name of the tool that owns an object; None if people may change the object in the cluster.

    The name includes the tool's application if an annotation names it.
    """
    return annotations.get(OWNER) or _by_marks(labels, annotations) or _by_manager(managers)


def _by_marks(labels: Mapping[str, str], annotations: Mapping[str, str]) -> str | None:
    tracking = annotations.get("argocd.argoproj.io/tracking-id") or labels.get("argocd.argoproj.io/instance")
    if tracking:
        return f"Argo CD ({tracking.partition(':')[0]})"
    for kind, where in (("kustomize", "kustomize.toolkit.fluxcd.io"), ("helm", "helm.toolkit.fluxcd.io")):
        name = labels.get(f"{where}/name")
        if name:
            return f"Flux ({kind} {labels.get(f'{where}/namespace', 'default')}/{name})"
    if release := annotations.get("meta.helm.sh/release-name"):
        return f"Helm ({release})"
    if annotations.get("configmanagement.gke.io/managed") == "enabled":
        return "Config Sync"
    if app := labels.get("kapp.k14s.io/app"):
        return f"kapp ({app})"
    if composite := labels.get("crossplane.io/composite"):
        return f"Crossplane ({composite})"
    if "true" in (labels.get("kro.run/owned"), labels.get("internal.kro.run/owned")):
        return "kro"
    if any(key.startswith("argocd.argoproj.io/") for key in (*labels, *annotations)):
        return "Argo CD"  # what only tells it how to sync stands in Git
    return _MANAGED_BY.get(labels.get("app.kubernetes.io/managed-by", ""))


def _by_manager(managers: Iterable[str]) -> str | None:
    known = ((manager, begins, name) for manager in managers for begins, name in _MANAGERS)
    return next((name for manager, begins, name in known if manager == begins or manager.startswith(f"{begins}-")), None)
