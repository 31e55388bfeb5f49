"""One suite for the Protocol `Cluster`, over the real client and the tests' fake; and properties of the real one
alone.
"""

import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from fairlead_operator.cluster import Cluster, ClusterError, ClusterRefused, ClusterUnavailable, HttpCluster, Resource
from fairlead_testing.fakes.cluster import FakeCluster

NAMESPACE = "default"


@pytest.fixture(params=["kubernetes", "fake"])
async def cluster(request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    if request.param == "fake":
        yield FakeCluster()
        return
    connected = await HttpCluster.connect(request.getfixturevalue("kubeconfig"))
    yield connected
    await connected.close()


def service(name: str, **labels: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
        "spec": {"clusterIP": "None", "selector": {"a": "b"}, "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}]},
    }


@pytest.fixture
def name() -> str:
    return f"s{uuid.uuid4().hex[:8]}"


async def test_what_is_created_can_be_read_found_and_deleted(cluster: Cluster, name: str) -> None:
    assert await cluster.get(Resource.SERVICES, NAMESPACE, name) is None
    assert await cluster.create(Resource.SERVICES, NAMESPACE, service(name, kind=name))
    assert not await cluster.create(Resource.SERVICES, NAMESPACE, service(name)), "a second of the name is not an error"
    read = await cluster.get(Resource.SERVICES, NAMESPACE, name)
    assert read is not None
    assert read["metadata"]["uid"]
    assert [found["metadata"]["name"] for found in await cluster.find(Resource.SERVICES, NAMESPACE, f"kind={name}")] == [name]
    assert await cluster.find(Resource.SERVICES, NAMESPACE, "kind=other") == []
    assert await cluster.delete(Resource.SERVICES, NAMESPACE, name)
    assert not await cluster.delete(Resource.SERVICES, NAMESPACE, name)


async def test_of_pods_only_the_parts_that_the_operator_reads_are_found(cluster: Cluster, name: str) -> None:
    metadata = {"name": name, "namespace": NAMESPACE, "labels": {"kind": name}, "annotations": {"a": "1"}, "finalizers": ["example.com/x"]}
    container = {"name": "engine", "image": "nobody/pulls:this", "ports": [{"containerPort": 8000, "protocol": "TCP"}]}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"nodeName": "node-of-nobody", "containers": [container]}}
    assert await cluster.create(Resource.PODS, NAMESPACE, body)
    (found,) = await cluster.find(Resource.PODS, NAMESPACE, f"kind={name}")
    assert found["spec"] == {"nodeName": "node-of-nobody", "containers": [{"name": "engine", "ports": container["ports"]}]}
    assert found["metadata"]["annotations"] == {"a": "1"}
    assert found["metadata"]["uid"]
    assert "finalizers" not in found["metadata"]
    assert await cluster.patch(Resource.PODS, NAMESPACE, name, {"metadata": {"finalizers": None}})
    assert await cluster.delete(Resource.PODS, NAMESPACE, name)


async def test_a_merge_patch_changes_only_what_it_names(cluster: Cluster, name: str) -> None:
    assert not await cluster.patch(Resource.SERVICES, NAMESPACE, name, {"metadata": {"annotations": {"a": "1"}}})
    await cluster.create(Resource.SERVICES, NAMESPACE, service(name, kind=name))
    assert await cluster.patch(Resource.SERVICES, NAMESPACE, name, {"metadata": {"annotations": {"a": "1"}}})
    read = await cluster.get(Resource.SERVICES, NAMESPACE, name)
    assert read is not None
    assert read["metadata"]["annotations"] == {"a": "1"}
    assert read["metadata"]["labels"] == {"kind": name}


async def test_a_patch_of_an_old_version_is_refused(cluster: Cluster, name: str) -> None:
    await cluster.create(Resource.SERVICES, NAMESPACE, service(name))
    read = await cluster.get(Resource.SERVICES, NAMESPACE, name)
    assert read is not None
    await cluster.patch(Resource.SERVICES, NAMESPACE, name, {"metadata": {"annotations": {"a": "1"}}})
    stale = {"metadata": {"annotations": {"a": "2"}, "resourceVersion": read["metadata"]["resourceVersion"]}}
    with pytest.raises(ClusterRefused) as refused:
        await cluster.patch(Resource.SERVICES, NAMESPACE, name, stale)
    assert refused.value.status == 409


async def test_a_patch_of_another_object_of_that_name_is_refused(cluster: Cluster, name: str) -> None:
    await cluster.create(Resource.SERVICES, NAMESPACE, service(name))
    with pytest.raises(ClusterRefused) as refused:
        await cluster.patch(Resource.SERVICES, NAMESPACE, name, {"metadata": {"annotations": {"a": "1"}, "uid": "another"}})
    assert refused.value.status == 422


async def test_a_refusal_carries_the_servers_sentence(kubeconfig: str, name: str) -> None:
    cluster = await HttpCluster.connect(kubeconfig)
    body = {
        "apiVersion": "fairlead.dev/v1alpha1",
        "kind": "InferencePool",
        "metadata": {"name": name},
        "spec": {"model": "m", "replicas": -1},
    }
    with pytest.raises(ClusterRefused, match=r"spec\.replicas") as refused:
        await cluster.create(Resource.POOLS, NAMESPACE, body)
    assert refused.value.status == 422
    await cluster.close()


async def test_a_server_that_is_away_is_unavailable(tmp_path: Path) -> None:
    document = {
        "current-context": "c",
        "clusters": [{"name": "k", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
    }
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    cluster = await HttpCluster.connect(str(path))
    with pytest.raises(ClusterUnavailable):
        await cluster.get(Resource.PODS, NAMESPACE, "any")
    await cluster.close()


async def test_a_missing_kubeconfig_is_named() -> None:
    with pytest.raises(ClusterError, match="/nowhere/kubeconfig"):
        await HttpCluster.connect("/nowhere/kubeconfig")


async def test_credentials_that_expired_are_read_anew(kubeconfig: str, tmp_path: Path) -> None:
    good = Path(kubeconfig).read_text(encoding="utf-8")
    document = yaml.safe_load(good)
    document["users"][0]["user"]["token"] = "expired"
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    cluster = await HttpCluster.connect(str(path))
    with pytest.raises(ClusterUnavailable, match="401"):
        await cluster.find(Resource.PODS, NAMESPACE, "a=b")
    path.write_text(good, encoding="utf-8")
    assert await cluster.find(Resource.PODS, NAMESPACE, "a=b") == []
    await cluster.close()
