"""Who owns an object besides people."""

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
        ({}, {"fairlead.dev/owner": "File /srv/pool.yaml"}, ("file",), "File /srv/pool.yaml"),
    ],
)
def test_owners_are_known_by_their_marks(
    labels: dict[str, str], annotations: dict[str, str], managers: tuple[str, ...], owner: str | None
) -> None:
    assert owner_of(labels, annotations, managers) == owner
