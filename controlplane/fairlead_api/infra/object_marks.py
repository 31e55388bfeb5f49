"""Annotations on Kubernetes objects. Some are left by an applied plan, so that the operator's report of the change can
be recognised. Others say who owns an object: a GitOps tool, whose objects must be changed in Git, or a file. Pure.
"""

from collections.abc import Iterable, Mapping

FIELD_MANAGER = "fairlead-api"
"""The field manager of every change the API makes; the marks count only together with it."""
CHANGED_BY = "fairlead.dev/changed-by"
CHANGE_REASON = "fairlead.dev/change-reason"
PLAN = "fairlead.dev/plan"


OWNER = "fairlead.dev/owner"
"""The annotation that names the owner of a pool directly: the file that `fairlead serve` was given."""

_MANAGERS = {
    "argocd-controller": "Argo CD",
    "argocd-application-controller": "Argo CD",
    "kustomize-controller": "Flux",
    "helm-controller": "Flux",
    "helm": "Helm",
}


def owner_of(labels: Mapping[str, str], annotations: Mapping[str, str], managers: Iterable[str] = ()) -> str | None:
    """The name of the owning tool; None if people may change the object here.

    The name includes the tool's application if the annotation has it.
    """
    if annotations.get(OWNER):
        return annotations[OWNER]
    tracking = annotations.get("argocd.argoproj.io/tracking-id") or labels.get("argocd.argoproj.io/instance")
    if tracking:
        return f"Argo CD ({tracking.partition(':')[0]})"
    for kind, where in (("kustomize", "kustomize.toolkit.fluxcd.io"), ("helm", "helm.toolkit.fluxcd.io")):
        name = labels.get(f"{where}/name")
        if name:
            return f"Flux ({kind} {labels.get(f'{where}/namespace', 'default')}/{name})"
    release = annotations.get("meta.helm.sh/release-name")
    if release or labels.get("app.kubernetes.io/managed-by") == "Helm":
        return f"Helm ({release})" if release else "Helm"
    for manager in managers:
        if manager in _MANAGERS:
            return _MANAGERS[manager]
        if any(key.startswith("argocd.argoproj.io") for key in (*labels, *annotations)):
            return "Argo CD"
    return None
