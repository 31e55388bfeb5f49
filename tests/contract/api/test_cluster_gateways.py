"""Properties of a cluster on which plans rely, for the sandbox's Kubernetes API over HTTP and for the tests' fake."""

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fairlead.errors import InvalidInput
from fairlead.tables import PoolKey
from fairlead_api.infra.errors import ClusterUnavailable, Conflict, NotFound
from fairlead_api.plans.cluster import KubernetesCluster
from fairlead_api.plans.objects import ClusterGateway, Target
from fairlead_testing.fakes.cluster_gateway import FakeClusterGateway
from fairlead_testing.running.api import CHAT
from fairlead_testing.running.operator_process import POOLS, running_kubernetes_api
from fairlead_testing.waiting import PATIENCE_SECONDS
from processkube.testing.clients import KubernetesClient

POOL = Target.of_pool(CHAT)
NOPE = Target.of_pool(PoolKey(namespace="default", name="nope"))


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_kubernetes_api(tmp_path_factory.mktemp("kubernetes")) as path:
        yield path


@pytest.fixture(params=["fake", "kubernetes"])
async def gateway(request: pytest.FixtureRequest) -> AsyncIterator[ClusterGateway]:
    """Yield a cluster with the pool `chat`: 4 replicas, at most 8."""
    if request.param == "fake":
        fake = FakeClusterGateway(most=8)
        fake.add(CHAT, 4)
        yield fake
        return
    kubeconfig: str = request.getfixturevalue("kubeconfig")
    client = KubernetesClient.of(kubeconfig)
    client.session.delete(f"{client.server}{POOLS}/chat", timeout=PATIENCE_SECONDS)
    spec: dict[str, Any] = {"model": "tiny", "replicas": 4, "roles": [{"name": "both", "maxReplicas": 8}]}
    body = {"apiVersion": "fairlead.dev/v1alpha1", "kind": "InferencePool", "metadata": {"name": "chat"}, "spec": spec}
    client.call("POST", POOLS, body)
    cluster = KubernetesCluster(kubeconfig)
    yield cluster
    await cluster.close()


async def test_a_dry_run_answers_like_a_write_and_changes_nothing(gateway: ClusterGateway) -> None:
    before = await gateway.read(POOL)
    assert before.spec["replicas"] == 4
    tried = await gateway.patch(POOL, {"replicas": 6}, before.resource_version, {}, dry_run=True)
    assert tried.spec["replicas"] == 6
    assert await gateway.read(POOL) == before


async def test_a_write_bumps_the_generation_once_and_leaves_its_marks(gateway: ClusterGateway) -> None:
    before = await gateway.read(POOL)
    after = await gateway.patch(
        POOL, {"replicas": 6}, before.resource_version, {"fairlead.dev/plan": "p1", "fairlead.dev/change-reason": None}, dry_run=False
    )
    assert (after.spec["replicas"], after.generation, after.uid) == (6, before.generation + 1, before.uid)
    found = await gateway.read(POOL)
    assert found.annotations["fairlead.dev/plan"] == "p1"
    assert "fairlead.dev/change-reason" not in found.annotations


async def test_an_old_resource_version_is_a_conflict(gateway: ClusterGateway) -> None:
    before = await gateway.read(POOL)
    await gateway.patch(POOL, {"replicas": 6}, before.resource_version, {}, dry_run=False)
    for dry_run in (True, False):
        with pytest.raises(Conflict):
            await gateway.patch(POOL, {"replicas": 5}, before.resource_version, {}, dry_run=dry_run)


async def test_what_the_schema_forbids_is_refused_with_its_words(gateway: ClusterGateway) -> None:
    before = await gateway.read(POOL)
    with pytest.raises(InvalidInput, match="maxReplicas"):
        await gateway.patch(POOL, {"replicas": 9}, before.resource_version, {}, dry_run=True)


async def test_an_unknown_pool_is_not_found(gateway: ClusterGateway) -> None:
    calls: list[Callable[[], Any]] = [lambda: gateway.read(NOPE), lambda: gateway.patch(NOPE, {"replicas": 1}, "1", {}, dry_run=True)]
    for call in calls:
        with pytest.raises(NotFound):
            await call()


async def test_a_deleted_object_is_gone_and_can_be_created_again(gateway: ClusterGateway) -> None:
    before = await gateway.read(POOL)
    for uid, version in ((before.uid, "1"), ("another", before.resource_version)):
        with pytest.raises(Conflict):
            await gateway.delete(POOL, uid, version, dry_run=False)
    await gateway.delete(POOL, before.uid, before.resource_version, dry_run=True)
    manifest = {"labels": {"team": "a"}, "annotations": {"note": "b"}, "spec": dict(before.spec)}
    with pytest.raises(Conflict):
        await gateway.create(POOL, manifest, {}, dry_run=False)
    await gateway.delete(POOL, before.uid, before.resource_version, dry_run=False)
    with pytest.raises(NotFound):
        await gateway.delete(POOL, before.uid, before.resource_version, dry_run=False)
    await gateway.create(POOL, manifest, {}, dry_run=True)
    with pytest.raises(NotFound):
        await gateway.read(POOL)
    made = await gateway.create(POOL, manifest, {"fairlead.dev/plan": "p1", "fairlead.dev/change-reason": None}, dry_run=False)
    assert (made.spec, made.generation, made.labels) == (before.spec, 1, {"team": "a"})
    assert made.annotations == {"note": "b", "fairlead.dev/plan": "p1"}
    assert made.uid != before.uid


async def test_a_cluster_that_is_away_is_unavailable_in_one_line(tmp_path: Path) -> None:
    missing = KubernetesCluster(str(tmp_path / "none"))
    with pytest.raises(ClusterUnavailable) as caught:
        await missing.read(POOL)
    assert "\n" not in str(caught.value)
    config = tmp_path / "kubeconfig"
    config.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: x\nclusters: [{name: x, cluster: {server: 'http://127.0.0.1:1'}}]\n"
        "contexts: [{name: x, context: {cluster: x, user: x}}]\nusers: [{name: x, user: {token: t}}]\n"
    )
    with pytest.raises(ClusterUnavailable, match="does not answer"):
        await KubernetesCluster(str(config)).read(POOL)
