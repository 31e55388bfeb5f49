"""Operator and control API use exactly the rights that the chart gives them; the operator starts when the API
returns.
"""

import asyncio
from pathlib import Path

import pytest

from fairlead.errors import InvalidInput
from fairlead.instance_marks import POOL_LABEL
from fairlead.instances import Role, instance_name
from fairlead.pools import GROUP, VERSION
from fairlead.tables import PoolKey
from fairlead_api.access.cluster_rights import ClusterUser, KubernetesReviews
from fairlead_api.infra.errors import NotFound
from fairlead_api.plans.cluster import KubernetesCluster
from fairlead_api.plans.objects import Target, TargetKind
from fairlead_api.pods.reading import Pods
from fairlead_operator.pool_identity import PoolIdentity
from fairlead_testing.running.chart import RIGHTS, applied_rights, granted, rights_of
from fairlead_testing.running.kubernetes_api import service_account_kubeconfig
from fairlead_testing.running.operator_process import ROLES, Stage, eventually, health
from fairlead_testing.running.recording_proxy import RecordingProxy, recording_proxy
from fairlead_testing.running.workloads import LEADER_WORKER_SETS, PLACES, define_leader_worker_sets, make_workload
from fairlead_testing.waiting import PATIENCE_SECONDS
from fairlead_testing.worlds.chart_values import EXTERNAL, merged
from processkube.testing.clients import KubernetesClient
from processkube.testing.ports import free_port

DEFINITIONS = ("apiextensions.k8s.io", "customresourcedefinitions")
FINALIZERS = ("fairlead.dev", "inferencepools/finalizers", "update")
REMOVALS = {
    ("inference.networking.k8s.io", "inferencepools", "get"),
    ("inference.networking.k8s.io", "inferencepools", "delete"),
    ("", "services", "delete"),
    ("discovery.k8s.io", "endpointslices", "list"),
    ("discovery.k8s.io", "endpointslices", "delete"),
}
"""Of what showed pools to gateways before the picker was switched off: test_gateways.py."""
SERVICES = "/api/v1/namespaces/default/services"
PODS = "/api/v1/namespaces/default/pods"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"


def revision_numbers(stage: Stage) -> list[int]:
    found = stage.client.call("GET", "/apis/apps/v1/namespaces/default/controllerrevisions")["items"]
    return sorted(item["revision"] for item in found)


def live_a_whole_life(stage: Stage, name: str) -> None:
    """Everything the operator ever does: create, find a name taken, scale, restore, drain, delete; two roles."""
    pool = stage.apply(name, replicas=2)
    stage.settle(name, 2)
    third = instance_name(name, pool["metadata"]["uid"], Role.BOTH, 3)
    taken = {"metadata": {"name": third}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    stage.client.call("POST", PODS, {"apiVersion": "v1", "kind": "Pod", **taken})
    stage.edit(name, {"replicas": 3})
    eventually(lambda: stage.condition(name, "Degraded").get("reason") == "ChildNotOurs", "the taken name is told")
    stage.client.call("DELETE", f"{PODS}/{third}", {"gracePeriodSeconds": 0})
    stage.settle(name, 3)
    for path in (f"{SERVICES}/{name}", f"/apis/policy/v1/namespaces/default/poddisruptionbudgets/{name}-both"):
        stage.client.merge(path, {"metadata": {"labels": {"app.kubernetes.io/managed-by": "somebody"}}})
        eventually(
            lambda path=path: stage.client.call("GET", path)["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "fairlead",  # type: ignore[misc]
            "the label is restored",
        )
    budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    left = stage.client.call("GET", f"{budgets}/{name}-both")["metadata"]["labels"]
    of_an_earlier_pool = {"metadata": {"name": f"{name}-decode", "labels": left}}
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", **of_an_earlier_pool, "spec": {"minAvailable": 1}}
    role = {"pool": name, "role": "decode", "replicas": 1}
    stage.client.call("POST", budgets, budget)
    stage.client.call(
        "POST", ROLES, {"apiVersion": "fairlead.dev/v1alpha1", "kind": "InferencePoolRole", **of_an_earlier_pool, "spec": role}
    )
    for path, left_over in ((budgets, 1), (ROLES, 0)):
        eventually(
            lambda path=path, left_over=left_over: len(stage.client.call("GET", path)["items"]) == left_over,  # type: ignore[misc]
            "what belongs to a role that the pool has not is deleted",
        )
    stage.edit(name, {"replicas": 1})
    stage.settle(name, 1)
    stage.edit(name, {"engine": {"prefillTokensPerSecond": 7000}})
    eventually(lambda: revision_numbers(stage) == [1, 2], "the new revision is kept")
    stage.edit(name, {"engine": {"prefillTokensPerSecond": None}})
    eventually(lambda: revision_numbers(stage) == [2, 3], "the revision that the pool goes back to is the newest")
    stage.edit(name, {"rollout": {"revisionHistory": 1}})
    eventually(lambda: revision_numbers(stage) == [3], "former revisions go")
    stage.settle(name, 1)
    split = f"{name}-split"
    stage.apply(split, replicas=1, roles=[{"name": "prefill", "replicas": 1}, {"name": "decode"}])
    stage.settle(split, 2)
    stage.client.merge(f"{ROLES}/{split}-decode/scale", {"spec": {"replicas": 2}})
    stage.settle(split, 3)
    stage.edit(split, {"roles": [{"name": "prefill", "replicas": 1}, {"name": "decode", "replicas": 2}]})
    eventually(lambda: stage.client.call("GET", f"{ROLES}/{split}-decode")["spec"].get("pinned") == 2, "the role is pinned")
    define_leader_worker_sets(stage.client)
    live_as_groups(stage, f"{name}-groups")
    adopting = [scale_a_workload(stage, f"{name}-{kind.lower()}", kind) for kind in ("Deployment", "StatefulSet", "LeaderWorkerSet")]
    for one in (name, split, *adopting):
        stage.delete(one)
    for one in (name, split, *adopting):
        eventually(lambda one=one: stage.pool(one) is None, "the pool is gone")  # type: ignore[misc]


def live_as_groups(stage: Stage, name: str) -> None:
    """Make an instance of two nodes, find the name of another taken, take one back that lost its owner, remove one."""
    stage.phases.selectors.append("fairlead.dev/group-of")
    template = {"spec": {"containers": [{"name": "engine", "image": "fairlead/engine:1"}]}}
    pool = stage.apply(name, replicas=1, roles=[{"name": "both", "nodes": 2, "template": template}])
    stage.settle(name, 1)
    wait_for_quota(stage, f"{name}-queued")
    [group] = stage.client.call("GET", LEADER_WORKER_SETS)["items"]
    second = instance_name(name, pool["metadata"]["uid"], Role.BOTH, 2)
    stage.client.call("POST", LEADER_WORKER_SETS, {**group, "metadata": {"name": second}, "status": None})
    stage.edit(name, {"replicas": 2})
    eventually(lambda: stage.condition(name, "Degraded").get("reason") == "ChildNotOurs", "the taken name is told")
    stage.client.call("DELETE", f"{LEADER_WORKER_SETS}/{second}", {"propagationPolicy": "Background"})
    path = f"{LEADER_WORKER_SETS}/{group['metadata']['name']}"
    stage.client.merge(path, {"metadata": {"ownerReferences": None}})
    eventually(lambda: stage.client.call("GET", path)["metadata"].get("ownerReferences"), "the group is taken back")
    stage.settle(name, 2)
    stage.edit(name, {"replicas": 1})
    stage.settle(name, 1)
    stage.delete(name)
    eventually(lambda: stage.pool(name) is None, "the pool is gone")


def wait_for_quota(stage: Stage, name: str) -> None:
    """Make an instance that Kueue does not admit."""
    spec = {"containers": [{"name": "engine", "image": "fairlead/engine:1"}], "schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}
    template = {"metadata": {"labels": {"kueue.x-k8s.io/managed": "true"}}, "spec": spec}
    stage.phases.starts = False  # no kubelet sees a pod that waits
    stage.apply(name, replicas=1, roles=[{"name": "both", "template": template}])
    eventually(lambda: stage.condition(name, "Degraded").get("reason") == "WaitingForQuota", "it waits for quota")
    stage.delete(name)
    stage.phases.starts = True


def scale_a_workload(stage: Stage, name: str, kind: str) -> str:
    """Let the operator scale out a workload without pods; return the name of workload and pool."""
    make_workload(stage.client, kind, name, 0)
    role = {"name": "both", "minReplicas": 1, "selector": {"matchLabels": {"app": name}}, "scaleTargetRef": {"kind": kind, "name": name}}
    stage.apply(name, replicas=1, roles=[role])
    eventually(lambda: stage.client.call("GET", f"{PLACES[kind]}/{name}")["spec"]["replicas"] == 1, "the workload is scaled")
    stage.client.call("DELETE", f"{PLACES[kind]}/{name}", {"propagationPolicy": "Background"})
    return name


@pytest.mark.timeout(1800)
def test_the_operator_asks_for_exactly_the_rights_that_it_has(proxied: tuple[Stage, RecordingProxy], tmp_path: Path) -> None:
    stage, proxy = proxied
    rights = granted(rights_of("operator", tmp_path))
    stage.client.session.delete(f"{stage.client.server}{LEASES}/fairlead-operator", timeout=PATIENCE_SECONDS)
    proxy.start()
    stage.operator.start()
    live_a_whole_life(stage, "righteous")
    assert proxy.asked == rights - {FINALIZERS} - REMOVALS
    assert PoolIdentity(namespace="n", name="p", uid="u").owner_reference()["blockOwnerDeletion"] is True, (
        "what the finalizers right is for"
    )
    assert FINALIZERS in rights


async def look_at_a_pod(cluster: KubernetesCluster, client: KubernetesClient) -> None:
    """Read the events and the log of a pod that no kubelet has started."""
    pool, pods = PoolKey(namespace="default", name="looked-at"), Pods(cluster)
    metadata = {"name": "looked-at-0", "labels": {POOL_LABEL: pool.name}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [{"name": "engine", "image": "i"}]}}
    await asyncio.to_thread(client.call, "POST", PODS, pod)
    assert (await pods.events(pool, "looked-at-0")).events == []
    with pytest.raises(InvalidInput, match="there is no log"):
        await pods.log(pool, "looked-at-0", 10, "", None, previous=False)
    await asyncio.to_thread(client.call, "DELETE", f"{PODS}/looked-at-0", {"gracePeriodSeconds": 0})


async def test_the_control_api_asks_for_exactly_the_rights_that_it_has(kubeconfig: str, tmp_path: Path) -> None:
    rights = await asyncio.to_thread(rights_of, "api", tmp_path)
    with recording_proxy(KubernetesClient.of(kubeconfig), tmp_path) as proxy:
        proxy.start()
        cluster = KubernetesCluster(str(proxy.kubeconfig))
        for kind in (TargetKind.POOL, TargetKind.ROLE, TargetKind.INSTANCE):
            target = Target(kind=kind, namespace="default", name="nobody")
            with pytest.raises(NotFound):
                await cluster.read(target)
            with pytest.raises(NotFound):
                await cluster.patch(target, {}, "1", {}, dry_run=True)
        nobody = Target.of_pool(PoolKey(namespace="default", name="nobody"))
        with pytest.raises(NotFound):
            await cluster.delete(nobody, "uid", "1", dry_run=True)
        with pytest.raises(InvalidInput):
            await cluster.create(nobody, {"labels": {}, "annotations": {}, "spec": {}}, {}, dry_run=True)
        assert await cluster.revisions(PoolKey(namespace="default", name="nobody")) == []
        await look_at_a_pod(cluster, KubernetesClient.of(kubeconfig))
        reviews = KubernetesReviews(cluster, None)
        assert await reviews.user_of("no-such-token") is None
        assert not await reviews.allows(ClusterUser(name="nobody", groups=()), "list", "", "default")
        await cluster.close()
        assert proxy.asked == granted(rights)


@pytest.mark.timeout(1800)
def test_limited_to_a_namespace_it_asks_for_exactly_the_rights_there_and_begins_at_once(
    proxied: tuple[Stage, RecordingProxy], tmp_path: Path
) -> None:
    stage, proxy = proxied
    limited = rights_of("operator", tmp_path, values=merged(EXTERNAL, {"operator": {"watchNamespaces": ["default"]}}))
    assert {document["kind"] for document in limited} == {"ServiceAccount", "Role", "RoleBinding"}
    proxy.start()
    stage.operator.settings["FAIRLEAD_WATCH_NAMESPACES"] = "default"
    stage.operator.start()
    live_a_whole_life(stage, "limited")
    taken = {("coordination.k8s.io", "leases", "create")}  # only the first time
    assert proxy.asked - taken == granted(limited) - {FINALIZERS} - REMOVALS - taken


def test_a_watched_namespace_that_was_deleted_with_its_role_keeps_the_others_from_nothing(
    stage: Stage, kubeconfig: str, tmp_path: Path
) -> None:
    limited = rights_of("operator", tmp_path, values=merged(EXTERNAL, {"operator": {"watchNamespaces": ["default"]}}))
    limited = [{**one, "metadata": {**one["metadata"], "name": f"{one['metadata']['name']}-limited"}} for one in limited]
    for one in limited:
        for reference in (one.get("roleRef"), *one.get("subjects", ())):
            if reference is not None:
                reference["name"] += "-limited"
    stage.operator.stop()
    port = free_port()
    with applied_rights(stage.client, limited):
        stage.operator.kubeconfig = str(service_account_kubeconfig(kubeconfig, "default", f"{RIGHTS}-fairlead-operator-limited", tmp_path))
        stage.operator.settings |= {"FAIRLEAD_WATCH_NAMESPACES": "gone,default", "FAIRLEAD_OPERATOR_LEASE_NAMESPACE": "default"}
        stage.operator.settings |= {"FAIRLEAD_OPERATOR_HEALTH_HOST": "127.0.0.1", "FAIRLEAD_OPERATOR_HEALTH_PORT": str(port)}
        stage.operator.start()
        stage.apply("among-others")
        stage.settle("among-others", 2)
        stage.edit("among-others", {"replicas": 1})
        stage.settle("among-others", 1)
        answer = health(port, "/readyz")
        assert answer is not None
        status, document = answer
        refused = document.pop("refused")
        assert (status, document) == (200, {"state": "leading", "holder": "under-test", "pools": 1})
        assert f"/apis/{GROUP}/{VERSION}/namespaces/gone/inferencepools" in refused
        assert all("/namespaces/gone/" in path for path in refused)
        assert "/namespaces/gone/inferencepools" in stage.operator.log.read_text(encoding="utf-8"), "it goes on asking for the other"
        stage.delete("among-others")
        eventually(lambda: stage.pool("among-others") is None, "the pool is gone")
        stage.operator.stop()


def test_without_the_right_to_list_definitions_it_works_and_says_so_once(proxied: tuple[Stage, RecordingProxy]) -> None:
    stage, proxy = proxied
    proxy.denied = {(*DEFINITIONS, "list"), (*DEFINITIONS, "watch")}
    proxy.start()
    stage.operator.start()
    stage.apply("modest")
    stage.settle("modest", 2)
    log = stage.operator.log.read_text(encoding="utf-8")
    assert log.count("no right to list CustomResourceDefinitions") == 1
    assert "ERROR" not in log
    assert "Traceback" not in log
    stage.delete("modest")
    eventually(lambda: stage.pool("modest") is None, "the pool is gone")


def test_an_operator_that_starts_before_the_api_waits_for_it_and_says_so(proxied: tuple[Stage, RecordingProxy]) -> None:
    stage, proxy = proxied
    port = free_port()
    stage.operator.settings |= {"FAIRLEAD_OPERATOR_HEALTH_HOST": "127.0.0.1", "FAIRLEAD_OPERATOR_HEALTH_PORT": str(port)}
    stage.operator.start()
    status, document = eventually(lambda: tells_why(health(port, "/readyz")), "it says why it waits")
    assert (status, document["state"]) == (503, "waiting")
    assert document["for"].startswith("the Kubernetes API; GET /apis/fairlead.dev/v1alpha1")
    assert health(port, "/healthz") == (200, document)
    stage.apply("patient")
    assert "\nTraceback" not in stage.operator.log.read_text(encoding="utf-8")
    proxy.start()
    stage.settle("patient", 2)
    assert health(port, "/readyz") == (200, {"state": "leading", "holder": "under-test", "pools": 1})
    stage.delete("patient")
    eventually(lambda: stage.pool("patient") is None, "the pool is gone")


def tells_why(answer: tuple[int, dict[str, str]] | None) -> tuple[int, dict[str, str]] | None:
    """Return the answer once the first look at the API has failed."""
    return answer if answer is not None and "GET" in answer[1].get("for", "") else None
