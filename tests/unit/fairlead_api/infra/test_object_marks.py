"""Which programs own an object."""

import pytest

from fairlead_api.infra.object_marks import owner_of


@pytest.mark.parametrize(
    ("labels", "annotations", "managers", "owner"),
    [
        ({}, {}, ("kubectl-client-side-apply", "fairlead-api"), None),
        ({}, {"argocd.argoproj.io/tracking-id": "shop:x"}, (), "Argo CD (shop)"),
        (
            {"kustomize.toolkit.fluxcd.io/name": "apps", "kustomize.toolkit.fluxcd.io/namespace": "flux"},
            {},
            (),
            "Flux (kustomize flux/apps)",
        ),
        ({"app.kubernetes.io/managed-by": "Helm"}, {"meta.helm.sh/release-name": "chat"}, (), "Helm (chat)"),
        ({}, {}, ("argocd-controller",), "Argo CD"),
        ({}, {"argocd.argoproj.io/sync-wave": "1"}, (), "Argo CD"),
        ({}, {"argocd.argoproj.io/sync-wave": "1"}, ("kubectl",), "Argo CD"),
        ({}, {"configmanagement.gke.io/managed": "enabled", "configsync.gke.io/resource-id": "x"}, (), "Config Sync"),
        ({}, {"configmanagement.gke.io/managed": "disabled"}, (), None),
        ({"kapp.k14s.io/app": "1557433075084066000"}, {}, (), "kapp (1557433075084066000)"),
        ({"crossplane.io/composite": "pool-x7"}, {}, (), "Crossplane (pool-x7)"),
        ({"kro.run/owned": "true"}, {}, (), "kro"),
        ({"internal.kro.run/owned": "true"}, {}, (), "kro"),
        ({"app.kubernetes.io/managed-by": "pulumi"}, {}, (), "Pulumi"),
        ({"app.kubernetes.io/managed-by": "our-team"}, {}, (), None),
        ({}, {}, ("kubectl", "pulumi-kubernetes-1a2b3c4d"), "Pulumi"),
        ({}, {}, ("Terraform",), "Terraform"),
        ({}, {}, ("helmsman",), None),
        ({}, {"fairlead.dev/owner": "File /srv/pool.yaml"}, ("file",), "File /srv/pool.yaml"),
    ],
)
def test_owners_are_known_by_their_marks(
    labels: dict[str, str], annotations: dict[str, str], managers: tuple[str, ...], owner: str | None
) -> None:
    assert owner_of(labels, annotations, managers) == owner
