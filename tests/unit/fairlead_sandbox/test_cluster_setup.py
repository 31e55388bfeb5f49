"""The paths at which a sandbox's processes find their kubeconfigs."""

from pathlib import Path

import pytest

from fairlead_sandbox import clusters
from fairlead_sandbox.cluster_setup import ESTABLISH_SECONDS, POOL_READY_SECONDS, ClusterSetup
from fairlead_sandbox.errors import SandboxError
from fairlead_sandbox.state_directory import StateDirectory
from processkube.kubeconfig import ClusterConnection
from processkube.kubernetes_client import KubernetesClient

KUBECONFIG = (
    "{current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}],"
    " clusters: [{name: a, cluster: {server: 'http://127.0.0.1:1'}}], users: [{name: a, user: {token: t}}]}"
)


@pytest.fixture
def directory(tmp_path: Path) -> StateDirectory:
    made = StateDirectory(root=tmp_path / "state")
    made.kubernetes.mkdir(parents=True)
    return made


async def test_people_find_the_admins_kubeconfig_of_the_sandboxs_own_api(directory: StateDirectory) -> None:
    (directory.kubernetes / "kubeconfig").write_text("own", encoding="utf-8")
    await ClusterSetup(directory, engine_port=8000).publish_kubeconfig()
    assert directory.kubeconfig.read_text(encoding="utf-8") == "own"
    assert {path.name for path in directory.kubernetes.iterdir()} == {"kubeconfig"}


async def test_a_clusters_kubeconfig_is_everybodys_and_nobody_elses_to_read(directory: StateDirectory, tmp_path: Path) -> None:
    (tmp_path / "cluster").write_text("theirs", encoding="utf-8")
    await ClusterSetup(directory, engine_port=8000, cluster=tmp_path / "cluster").publish_kubeconfig()
    written = {path.name: path for path in (directory.kubeconfig, *directory.kubernetes.iterdir())}
    assert set(written) == {"kubeconfig", "kubeconfig-kubelet", "kubeconfig-fairlead-api", "kubeconfig-fairlead-operator"}
    assert {path.read_text(encoding="utf-8") for path in written.values()} == {"theirs"}
    assert {path.stat().st_mode & 0o777 for path in written.values()} == {0o600}


async def test_a_kubeconfig_that_is_not_there_is_named(directory: StateDirectory, tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match=f"{tmp_path}/nowhere: the kubeconfig cannot be read"):
        await ClusterSetup(directory, engine_port=8000, cluster=tmp_path / "nowhere").publish_kubeconfig()


@pytest.mark.parametrize(("given", "wait"), [(False, POOL_READY_SECONDS), (True, 10.0)])
async def test_a_busy_machines_own_api_has_as_long_for_an_answer_as_for_a_pool(
    given: bool, wait: float, directory: StateDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = []

    class Client(KubernetesClient):
        def __init__(self, connection: ClusterConnection, *, timeout_seconds: float = 10.0) -> None:
            waits.append(timeout_seconds)
            super().__init__(connection, timeout_seconds=timeout_seconds)

    monkeypatch.setattr(clusters, "KubernetesClient", Client)
    (directory.kubernetes / "kubeconfig").write_text(KUBECONFIG, encoding="utf-8")
    with pytest.raises(SandboxError, match="does not answer"):
        await ClusterSetup(directory, engine_port=8000, cluster=tmp_path if given else None).apply_definitions()
    assert waits == [wait]
    assert wait <= ESTABLISH_SECONDS
