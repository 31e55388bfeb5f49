"""StatefulSets keep names, order and claims, in the sandbox and in any cluster."""

from __future__ import annotations

from typing import Any

import pytest

from processkube.testing.workloads import LABELS, Document, WorkloadNamespace, is_ready, pod_template

REVISION = "controller-revision-hash"


def stateful_set(replicas: int, image: str = "web:1", **spec: Any) -> Document:
    body = {"replicas": replicas, "serviceName": "web", "selector": {"matchLabels": dict(LABELS)}, "template": pod_template(image), **spec}
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "web"}, "spec": body}


def claim_template(name: str = "data") -> Document:
    return {"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}


def names(namespace: WorkloadNamespace) -> list[str]:
    return sorted(pod["metadata"]["name"] for pod in namespace.pods())


def image_of(namespace: WorkloadNamespace) -> dict[str, str]:
    return {pod["metadata"]["name"]: pod["spec"]["containers"][0]["image"] for pod in namespace.pods()}


def until_named(namespace: WorkloadNamespace, *wanted: str, running: bool = False) -> None:
    namespace.until(lambda: names(namespace) == sorted(wanted), f"the pods are {wanted}", running=running)


def settled(namespace: WorkloadNamespace) -> Document:
    """Return the StatefulSet once all its pods are updated and ready, while pods start."""

    def look() -> Document | None:
        item = namespace.get("statefulsets", "web")
        status, wanted = item.get("status", {}), item["spec"]["replicas"]
        counts = [status.get(one, 0) for one in ("replicas", "readyReplicas", "updatedReplicas", "availableReplicas")]
        is_seen = status.get("observedGeneration") == item["metadata"]["generation"]
        is_rolled = status.get("currentRevision") == status.get("updateRevision")
        return item if is_seen and is_rolled and counts == [wanted] * 4 else None

    return namespace.until(look, "the StatefulSet is settled", running=True)


def test_pods_come_one_after_the_other_and_go_the_other_way(namespace: WorkloadNamespace) -> None:
    namespace.create("statefulsets", stateful_set(3))
    until_named(namespace, "web-0")
    for number in (1, 2):
        namespace.start(f"web-{number - 1}")
        until_named(namespace, *(f"web-{one}" for one in range(number + 1)))
    settled(namespace)
    namespace.scale("statefulsets", "web", 1)
    until_named(namespace, "web-0")


def test_parallel_pods_come_and_go_at_once(namespace: WorkloadNamespace) -> None:
    namespace.create("statefulsets", stateful_set(3, podManagementPolicy="Parallel"))
    until_named(namespace, "web-0", "web-1", "web-2")
    assert not any(map(is_ready, namespace.pods()))
    namespace.scale("statefulsets", "web", 1)
    until_named(namespace, "web-0")


def test_a_pod_has_its_name_its_number_and_its_revision(namespace: WorkloadNamespace) -> None:
    namespace.create("statefulsets", stateful_set(1))
    item = settled(namespace)
    (revision,) = namespace.every("controllerrevisions")
    pod = namespace.get("pods", "web-0")
    assert pod["metadata"]["labels"] == {
        "app": "web",
        "statefulset.kubernetes.io/pod-name": "web-0",
        "apps.kubernetes.io/pod-index": "0",
        REVISION: revision["metadata"]["name"],
    }
    assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == ("web-0", "web")
    owners = pod["metadata"]["ownerReferences"] + revision["metadata"]["ownerReferences"]
    assert [(one["kind"], one["uid"], one["controller"]) for one in owners] == [("StatefulSet", item["metadata"]["uid"], True)] * 2
    assert revision["revision"] == 1
    assert revision["data"]["spec"]["template"]["spec"]["containers"][0]["image"] == "web:1"
    assert {name: value for name, value in item["status"].items() if not name.endswith("Revision")} == {
        "observedGeneration": 1,
        "replicas": 1,
        "readyReplicas": 1,
        "availableReplicas": 1,
        "currentReplicas": 1,
        "updatedReplicas": 1,
        "collisionCount": 0,
    }
    assert item["status"]["currentRevision"] == item["status"]["updateRevision"] == revision["metadata"]["name"]
    events = namespace.until(lambda: namespace.events("web"), "it is told")
    assert events == ["SuccessfulCreate: Create Pod web-0 in StatefulSet web successful"]


def test_a_deleted_or_failed_pod_comes_again_under_its_name(namespace: WorkloadNamespace) -> None:
    namespace.create("statefulsets", stateful_set(2))
    settled(namespace)
    before = namespace.get("pods", "web-0")["metadata"]["uid"]
    namespace.delete("pods", "web-0")
    namespace.until(lambda: names(namespace) == ["web-0", "web-1"], "the deleted one is there again")
    settled(namespace)
    assert namespace.get("pods", "web-0")["metadata"]["uid"] != before
    before = namespace.get("pods", "web-1")["metadata"]["uid"]
    namespace.end("web-1", "Failed")

    def replaced() -> bool:
        uids = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in namespace.pods()}
        return bool(uids.get("web-1", before) != before)

    namespace.until(replaced, "the failed one is replaced")


def test_an_update_goes_from_the_last_pod_to_the_first_and_waits_for_each(namespace: WorkloadNamespace) -> None:
    namespace.create("statefulsets", stateful_set(2))
    first = settled(namespace)["status"]["currentRevision"]
    namespace.set_image("web", "web:2", "statefulsets")
    namespace.until(lambda: image_of(namespace) == {"web-0": "web:1", "web-1": "web:2"}, "the last is updated first")
    status = namespace.until(
        lambda: (found := namespace.get("statefulsets", "web")["status"]).get("updatedReplicas") == 1 and found, "the status counts it"
    )
    assert (status["currentRevision"], status["currentReplicas"], status["readyReplicas"]) == (first, 1, 1)
    assert status["updateRevision"] != first
    namespace.start("web-1")
    namespace.until(lambda: image_of(namespace) == {"web-0": "web:2", "web-1": "web:2"}, "then the first")
    second = settled(namespace)["status"]["currentRevision"]
    namespace.set_image("web", "web:1", "statefulsets")
    assert settled(namespace)["status"]["currentRevision"] == first, "the revision of before is used again"
    numbers = {one["metadata"]["name"]: one["revision"] for one in namespace.every("controllerrevisions")}
    assert numbers == {first: 3, second: 2}


def test_pods_below_the_partition_keep_their_revision(namespace: WorkloadNamespace) -> None:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}
    namespace.create("statefulsets", stateful_set(2, updateStrategy=strategy))
    settled(namespace)
    namespace.set_image("web", "web:2", "statefulsets")
    namespace.until(lambda: image_of(namespace) == {"web-0": "web:1", "web-1": "web:2"}, "only the last is updated", running=True)
    namespace.delete("pods", "web-0")
    namespace.until(lambda: names(namespace) == ["web-0", "web-1"], "the first is there again", running=True)
    assert image_of(namespace) == {"web-0": "web:1", "web-1": "web:2"}


def test_on_delete_a_pod_is_updated_when_somebody_deletes_it(namespace: WorkloadNamespace) -> None:
    namespace.create("statefulsets", stateful_set(1, updateStrategy={"type": "OnDelete"}))
    namespace.until(lambda: namespace.get("statefulsets", "web")["status"].get("readyReplicas") == 1, "it is ready", running=True)
    namespace.set_image("web", "web:2", "statefulsets")
    namespace.until(lambda: len(namespace.every("controllerrevisions")) == 2, "the new template is seen")
    assert image_of(namespace) == {"web-0": "web:1"}
    namespace.delete("pods", "web-0")
    namespace.until(lambda: image_of(namespace) == {"web-0": "web:2"}, "it has the new template")


def test_each_pod_has_claims_that_outlive_it(namespace: WorkloadNamespace) -> None:
    namespace.create("statefulsets", stateful_set(2, podManagementPolicy="Parallel", volumeClaimTemplates=[claim_template()]))
    until_named(namespace, "web-0", "web-1")
    claims = {one["metadata"]["name"]: one for one in namespace.every("persistentvolumeclaims")}
    assert sorted(claims) == ["data-web-0", "data-web-1"]
    claim = claims["data-web-0"]
    assert claim["metadata"]["labels"] == LABELS
    assert "ownerReferences" not in claim["metadata"]
    assert (claim["spec"]["accessModes"], claim["spec"]["resources"]["requests"]) == (["ReadWriteOnce"], {"storage": "1Gi"})
    volumes = namespace.get("pods", "web-0")["spec"]["volumes"]
    assert {"name": "data", "persistentVolumeClaim": {"claimName": "data-web-0"}} in volumes
    told = "SuccessfulCreate: Create Claim data-web-0 Pod web-0 in StatefulSet web success"
    namespace.until(lambda: told in namespace.events("web"), "the claim is told")
    namespace.scale("statefulsets", "web", 0)
    until_named(namespace)
    assert len(namespace.every("persistentvolumeclaims")) == 2


def test_claims_go_with_the_stateful_set_when_its_policy_says_so(namespace: WorkloadNamespace) -> None:
    policy = {"whenDeleted": "Delete", "whenScaled": "Retain"}
    body = stateful_set(1, volumeClaimTemplates=[claim_template()], persistentVolumeClaimRetentionPolicy=policy)
    made = namespace.create("statefulsets", body)
    settled(namespace)

    def owners() -> list[tuple[str, str]]:
        return [
            (one["kind"], one["uid"])
            for one in namespace.get("persistentvolumeclaims", "data-web-0")["metadata"].get("ownerReferences", [])
        ]

    namespace.until(lambda: owners() == [("StatefulSet", made["metadata"]["uid"])], "the claim is the StatefulSet's")
    namespace.delete("statefulsets", "web", propagationPolicy="Background")
    namespace.until(lambda: not namespace.every("pods") and not namespace.every("persistentvolumeclaims"), "pod and claim are gone")


def test_claims_go_with_a_pod_that_is_scaled_in_when_the_policy_says_so(namespace: WorkloadNamespace) -> None:
    policy = {"whenDeleted": "Retain", "whenScaled": "Delete"}
    body = stateful_set(2, volumeClaimTemplates=[claim_template()], persistentVolumeClaimRetentionPolicy=policy)
    namespace.create("statefulsets", body)
    settled(namespace)
    namespace.scale("statefulsets", "web", 1)
    namespace.until(
        lambda: [one["metadata"]["name"] for one in namespace.every("persistentvolumeclaims")] == ["data-web-0"], "one claim is left"
    )


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"podManagementPolicy": "Sorted"}, "must be 'OrderedReady' or 'Parallel'"),
        ({"updateStrategy": {"type": "Sometimes"}}, "must be 'RollingUpdate' or 'OnDelete'"),
        (
            {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": -1}}},
            "spec.updateStrategy.rollingUpdate.partition: Invalid value: -1: must be greater than or equal to 0",
        ),
    ],
)
def test_a_stateful_set_that_cannot_run_is_refused(namespace: WorkloadNamespace, spec: Document, message: str) -> None:
    assert message in namespace.refusal("statefulsets", stateful_set(1, **spec))
